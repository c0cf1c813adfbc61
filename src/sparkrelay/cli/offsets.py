"""``sparkrelay offsets``: show and set the offsets of an application's group."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from sparkrelay.cli.options import (
    NOTHING_CHANGED,
    ApplicationId,
    BootstrapServers,
    CommandConfig,
    Execute,
    connected,
)
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sparkrelay.runtime.instance.group_offsets import GroupOffsets, NewOffsets, PartitionOffsets
    from sparkrelay.types import TopicPartition

offsets = App(name="offsets", help="Show and set an application's offsets in the topics that it reads.")

_AFTERWARDS = (
    "The next start continues from there. Tasks with state keep it and skip the records in between. They do not accept "
    "an offset before the one that their state has reached, unless the topic was recreated: use sparkrelay reset. "
    "A store whose changelog was recreated starts empty"
)


@offsets.command
def show(
    *, application_id: ApplicationId, bootstrap_servers: BootstrapServers, command_config: CommandConfig = None
) -> None:
    """Show the group's offset of each partition, the log's first and end offset, and how many are left to read."""
    with _opened(application_id, bootstrap_servers, command_config) as group:
        for line in table(application_id, group.show()):
            print(line)


@offsets.command(name="set")
def set_(
    *,
    application_id: ApplicationId,
    bootstrap_servers: BootstrapServers,
    topic: Annotated[str, Parameter(help="The source topic.")],
    to: Annotated[
        str,
        Parameter(help="earliest, latest, current (where the group is), an offset, or a time: 2026-11-28T12:00:00Z."),
    ],
    partitions: Annotated[str | None, Parameter(help="Some of its partitions, 0,2,...; default: all.")] = None,
    command_config: CommandConfig = None,
    execute: Execute = False,
) -> None:
    """Set where a stopped application continues to read a topic.

    For use after records have expired, or the topic or a changelog was recreated.
    """
    from sparkrelay.runtime.instance.group_offsets import target  # noqa: PLC0415
    from sparkrelay.runtime.instance.stopped_group import require_stopped  # noqa: PLC0415

    place, numbers = target(to), _numbers(partitions)
    with _opened(application_id, bootstrap_servers, command_config) as group:
        new = group.look(topic, numbers, place)
        for line in changes(new, to):
            print(line)
        require_stopped(application_id, new.members)
        if execute:
            group.set(new)
        print(_AFTERWARDS if execute else NOTHING_CHANGED)


def table(application_id: str, found: Mapping[TopicPartition, PartitionOffsets]) -> Iterator[str]:
    """Yield a line for each partition."""
    if not found:
        yield f"application {application_id} has committed no offsets"
        return
    rows: list[tuple[str, ...]] = [("partition", "offset", "first", "end", "left", "")]
    rows += [
        (str(at), *("-" if n is None else str(n) for n in (one.group, one.first, one.end, one.lag)), _remark(one))
        for at, one in found.items()
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for name, *numbers, remark in rows:
        columns = [name.ljust(widths[0]), *(text.rjust(width) for text, width in zip(numbers, widths[1:], strict=True))]
        yield f"{'  '.join(columns)}  {remark}".rstrip()


def changes(new: NewOffsets, to: str) -> Iterator[str]:
    """Yield a line for each partition whose offset is to be set."""
    for partition, (before, then) in new.offsets.items():
        yield f"{partition}: offset {'none' if before is None else before} -> {then} ({to})"
    if all(before is None for before, _ in new.offsets.values()):
        topic = min(new.offsets).topic
        yield f"the group has no offset of {topic}: instances that do not read this topic ignore the new ones"


def _remark(one: PartitionOffsets) -> str:
    if one.first is None or one.end is None:
        return "does not exist"
    if one.group < one.first:
        return f"records {one.group} to {one.first - 1} are gone"
    return "beyond the end of the log" if one.group > one.end else ""


def _numbers(text: str | None) -> frozenset[int] | None:
    if text is None:
        return None
    numbers = [number.strip() for number in text.split(",")]
    if not all(number.isascii() and number.isdigit() and len(number) < 10 for number in numbers):
        raise ConfigException(f"--partitions {text!r} is not a list of numbers such as 0,2")
    return frozenset(map(int, numbers))


@contextmanager
def _opened(application_id: str, bootstrap_servers: str, command_config: CommandConfig) -> Iterator[GroupOffsets]:
    from sparkrelay.runtime.instance.group_offsets import GroupOffsets  # noqa: PLC0415

    with connected(bootstrap_servers, command_config) as client:
        yield GroupOffsets(client, application_id)
