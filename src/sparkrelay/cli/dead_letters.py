"""``sparkrelay dead-letters``: inspect the letters of a dead letter topic, and replay them to their topics."""

from __future__ import annotations

import datetime as dt
from collections import Counter, deque
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import App, Parameter

from sparkrelay.cli.options import NOTHING_CHANGED, BootstrapServers, CommandConfig, Execute, client_settings
from sparkrelay.errors import ConfigException
from sparkrelay.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparkrelay.runtime.instance.dead_letters import DeadLetter, DeadLetters, Replay

dead_letters = App(name="dead-letters", help="Inspect the records that an application has left out, and replay them.")

Topic: TypeAlias = Annotated[str, Parameter(help="The topic of errors.dead.letter.queue.topic.name.")]

#: Maximum characters of a message in a list, and of a shown key or value.
_LONGEST_MESSAGE = 100
_LONGEST_BYTES = 2_000


@dead_letters.command(name="list")
def list_(topic: Topic, *, bootstrap_servers: BootstrapServers, command_config: CommandConfig = None) -> None:
    """Show the number of letters of each source topic and exception, and the newest message."""
    with _opened(topic, bootstrap_servers, command_config) as letters:
        # Read all first: a topic that is not a dead letter topic is only recognized at its end.
        for line in [*summary(_of_letters(topic, letters.read()))]:
            print(line)


@dead_letters.command
def show(
    topic: Topic,
    *,
    bootstrap_servers: BootstrapServers,
    last: Annotated[int, Parameter(help="Number of letters.")] = 10,
    command_config: CommandConfig = None,
) -> None:
    """Show the newest letters: where each is from, what went wrong, its key, value and headers."""
    with _opened(topic, bootstrap_servers, command_config) as letters:
        # Partitions are read one after the other, and the newest letters of all are wanted.
        newest = sorted(_newest(_of_letters(topic, letters.read()), last), key=lambda letter: letter.timestamp)[-last:]
        for letter in newest if last > 0 else ():
            print("\n".join(described(letter)), end="\n\n")


@dead_letters.command
def replay(
    topic: Topic,
    *,
    bootstrap_servers: BootstrapServers,
    execute: Execute = False,
    command_config: CommandConfig = None,
) -> None:
    """Write letters back to their topics and partitions, unless an earlier replay has done so.

    Each is written back exactly once, even after crashes. Letters from internal topics (-repartition, -changelog,
    __...) are left.
    """
    with _opened(topic, bootstrap_servers, command_config) as letters:
        outcome = letters.replay() if execute else letters.look()
        for line in replayed(outcome, execute=execute):
            print(line)


def summary(letters: Iterable[DeadLetter]) -> Iterator[str]:
    """Yield a line for each source topic and exception, those with most letters first."""
    counts = Counter[tuple[str, str]]()
    newest: dict[tuple[str, str], DeadLetter] = {}
    for letter in letters:
        group = "?" if letter.source is None else letter.source.topic, letter.exception or "?"
        counts[group] += 1
        newest[group] = max(letter, newest.get(group, letter), key=lambda one: one.timestamp)
    if not counts:
        yield "no letters"
    for group, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        source, exception = map(printable, group)
        letter = newest[group]
        message = printable(letter.message)
        message = message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}..."
        yield f"{count:>8,}  {source}  {exception}  {_time(letter)}  {message}"


def described(letter: DeadLetter) -> Iterator[str]:
    """Yield the lines that show a letter, without control characters."""
    source = "?" if letter.source is None else f"{letter.source} at offset {letter.source_offset}"
    yield f"{letter.at} at offset {letter.offset}, from {printable(source)}, {_time(letter)}"
    yield f"  {printable(letter.exception)}: {printable(letter.message)}"
    yield f"  key      {_bytes(letter.key)}"
    yield f"  value    {_bytes(letter.value)}"
    for name, value in letter.headers:
        yield f"  header   {printable(name)} = {_bytes(value)}"


def replayed(outcome: Replay, *, execute: bool) -> Iterator[str]:
    """Yield what was written back, or would be."""
    for topic, count in sorted(outcome.letters.items()):
        yield f"{count:,} {'went' if execute else 'would go'} back to {printable(topic)}"
    if outcome.left:
        yield (
            f"{outcome.left:,} {'stay' if not execute else 'stayed'}: they are from internal topics, from topics that "
            "do not exist, or do not say where they are from"
        )
    if not outcome.letters and not outcome.left:
        yield "there is nothing that was not written back before"
    elif not execute:
        yield NOTHING_CHANGED


def _opened(topic: str, bootstrap_servers: str, command_config: CommandConfig) -> DeadLetters:
    from sparkrelay.runtime.instance.dead_letters import DeadLetters  # noqa: PLC0415 - it loads Arrow

    return DeadLetters(client_settings(bootstrap_servers, command_config), topic)


def _of_letters(topic: str, records: Iterable[DeadLetter]) -> Iterator[DeadLetter]:
    """Yield the records of a topic; raise ConfigException at its end if it has records but no dead letter."""
    seen, letters = 0, 0
    for record in records:
        seen += 1
        letters += record.is_letter
        yield record
    if seen and not letters:
        raise ConfigException(
            f"topic {topic!r} is not a dead letter topic: none of its {seen:,} records has the headers of "
            "a dead letter (__streams.errors.topic, ...); give the topic that errors.dead.letter.queue.topic.name names"
        )


def _newest(letters: Iterable[DeadLetter], count: int) -> Iterator[DeadLetter]:
    kept: dict[object, deque[DeadLetter]] = {}
    for letter in letters:
        kept.setdefault(letter.at, deque(maxlen=max(count, 0))).append(letter)
    for some in kept.values():
        yield from some


def _time(letter: DeadLetter) -> str:
    try:
        at = dt.datetime.fromtimestamp(letter.timestamp / 1000, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return f"{letter.timestamp} ms"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _bytes(data: bytes | None) -> str:
    """Return bytes as text, or in hexadecimal if they are not UTF-8."""
    if data is None:
        return "null"
    shown = data[:_LONGEST_BYTES]
    rest = f" ... {len(data):,} bytes" if len(data) > len(shown) else ""
    try:
        return printable(shown.decode()) + rest
    except UnicodeDecodeError:
        return f"0x{shown.hex()}{rest}"
