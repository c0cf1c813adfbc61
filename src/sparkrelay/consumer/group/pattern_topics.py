"""Topic patterns: matching under the classic protocol, where the client does it and so needs all topics.

A pattern must match the whole name, as in Kafka (``Matcher.matches``). Internal topics (``__consumer_offsets``, ...)
never match, as with Kafka's ``exclude.internal.topics=true``. Under KIP-848 the broker matches, as RE2: it gets the
result of ``pattern_for_broker``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sparkrelay.consumer.base.arguments import topics_of
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkrelay.client.metadata import Metadata
    from sparkrelay.consumer.base.topic_metadata import TopicMetadataManager

#: Regular expression flags that RE2 has, with its names.
_RE2_FLAGS: Final = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s"}


@dataclass(eq=False)
class PatternTopics:
    """The topics that match one pattern. Pure, see ``requests``."""

    metadata: Metadata
    topics: TopicMetadataManager

    def __post_init__(self) -> None:
        self._pattern: re.Pattern[str] | None = None
        self._found: frozenset[str] | None = None
        self._known = False
        self._version = -1
        self._round = 0

    @property
    def watching(self) -> bool:
        """Whether there is a pattern."""
        return self._pattern is not None

    def watch(self, pattern: re.Pattern[str] | None) -> None:
        """Watch for topics that match ``pattern``; None stops watching."""
        if pattern is None and self._pattern is None:
            return
        self._round += 1
        self._pattern, self._found, self._known, self._version = pattern, None, False, -1
        self.topics.want_all(pattern is not None)
        if pattern is not None:
            current = self._round

            def known() -> None:
                if current == self._round:
                    self._known = True

            self.topics.ask(None, known)

    def changed(self) -> frozenset[str] | None:
        """Return all matching topics if they changed since the last call, else None."""
        if self._pattern is None or not self._known or self.metadata.version == self._version:
            return None
        self._version = self.metadata.version
        match = self._pattern.fullmatch
        found = frozenset(n for n, t in self.metadata.topics().items() if not t.is_internal and match(n))
        before, self._found = self._found, found
        return found if found != before else None


def topics_or_pattern(topics: Iterable[str] | str | re.Pattern[str]) -> tuple[frozenset[str], re.Pattern[str] | None]:
    """Separate names from patterns in the argument of ``subscribe``; raise ConfigException if one is invalid."""
    if isinstance(topics, re.Pattern):
        if not isinstance(topics.pattern, str):
            raise ConfigException(f"subscribe({topics!r}): topic names are text, not bytes; write the pattern as text")
        return frozenset(), topics
    names = topics_of("subscribe()", topics)
    patterns = [name for name in names if name.startswith("^")]
    if not patterns:
        return frozenset(names), None
    for name in patterns:
        try:
            re.compile(name)
        except re.error as error:
            raise ConfigException(
                f"subscribe(): {name!r} begins with ^, so it must be a regular expression: {error}"
            ) from error
    # As in librdkafka: an expression that begins with ^ need not match to the end of a name.
    parts = [f"(?:{name}).*" if name.startswith("^") else re.escape(name) for name in names]
    text = parts[0] if len(parts) == 1 else "|".join(f"(?:{part})" for part in parts)
    try:
        return frozenset(), re.compile(text)
    except re.error as error:
        written = ", ".join(map(repr, patterns))
        raise ConfigException(f"subscribe(): {written} cannot be one regular expression together: {error}") from error


def pattern_for_broker(pattern: re.Pattern[str]) -> str:
    """Return a pattern in RE2's syntax, with its flags; raise ConfigException if RE2 lacks one of them."""
    if pattern.flags & re.VERBOSE:
        raise ConfigException(
            f"subscribe({pattern.pattern!r}) with re.VERBOSE: with group.protocol='consumer' the broker matches, and "
            "its expressions (RE2) lack that flag; write it without, or set group.protocol='classic'"
        )
    flags = "".join(name for flag, name in _RE2_FLAGS.items() if pattern.flags & flag)
    return f"(?{flags}:{pattern.pattern})" if flags else pattern.pattern
