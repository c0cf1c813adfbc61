"""Which topics a pattern stands for, under the classic protocol: there the client matches, so it must know all topics.

A pattern must match a topic's whole name, as in Kafka (``Matcher.matches``). Kafka's internal topics
(``__consumer_offsets``, ...) never match, as with its ``exclude.internal.topics=true``. Under KIP-848 the broker
matches, as RE2: it gets what ``pattern_for_broker`` makes of a pattern.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sparkrelay.consumer.base.arguments import topics_of
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkrelay.client.metadata import Metadata
    from sparkrelay.consumer.base.topic_metadata import TopicMetadataManager

__all__ = ["PatternTopics", "pattern_for_broker", "topics_or_pattern"]


#: What RE2 calls the flags that it has too.
_RE2_FLAGS: Final = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s"}


class PatternTopics:
    """The topics that match one pattern. Pure, see ``requests``.

    Args:
        metadata: what is known of the cluster.
        topics: keeps all topics known while there is a pattern.
    """

    def __init__(self, metadata: Metadata, topics: TopicMetadataManager) -> None:
        self._metadata = metadata
        self._asker = topics
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
        """Look for topics that match ``pattern`` from now on, or for none."""
        if pattern is None and self._pattern is None:
            return
        self._round += 1
        self._pattern, self._found, self._known, self._version = pattern, None, False, -1
        self._asker.want_all(pattern is not None)
        if pattern is not None:
            current = self._round

            def known() -> None:
                if current == self._round:
                    self._known = True

            self._asker.ask(None, known)

    def changed(self) -> frozenset[str] | None:
        """Return all topics that match if they changed since the last time, else None."""
        if self._pattern is None or not self._known or self._metadata.version == self._version:
            return None
        self._version = self._metadata.version
        match = self._pattern.fullmatch
        found = frozenset(n for n, t in self._metadata.topics().items() if not t.is_internal and match(n))
        before, self._found = self._found, found
        return found if found != before else None


def topics_or_pattern(
    topics: Iterable[str] | str | re.Pattern[str],
) -> tuple[frozenset[str], re.Pattern[str] | None]:
    """Separate names from patterns in what was given to ``subscribe``.

    Raises:
        ConfigException: something is no name, or begins with ^ and is no regular expression, or is a pattern for bytes.
    """
    if isinstance(topics, re.Pattern):
        if not isinstance(topics.pattern, str):
            raise ConfigException(f"subscribe({topics!r}): names of topics are no bytes; write it as text")
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
                f"subscribe(): {name!r}: what begins with ^ is a regular expression, and {error}"
            ) from error
    # librdkafka's way: what begins with ^ is a regular expression that need not match to a name's end.
    parts = [f"(?:{name}).*" if name.startswith("^") else re.escape(name) for name in names]
    text = parts[0] if len(parts) == 1 else "|".join(f"(?:{part})" for part in parts)
    try:
        return frozenset(), re.compile(text)
    except re.error as error:
        written = ", ".join(map(repr, patterns))
        raise ConfigException(f"subscribe(): {written} cannot be one regular expression together: {error}") from error


def pattern_for_broker(pattern: re.Pattern[str]) -> str:
    """Return a pattern as RE2 reads it, with its flags.

    Raises:
        ConfigException: it has a flag that RE2 does not have.
    """
    if pattern.flags & re.VERBOSE:
        raise ConfigException(
            f"subscribe({pattern.pattern!r}) with re.VERBOSE: with group.protocol='consumer' the broker matches, and "
            "its expressions (RE2) do not have that; write it without, or set group.protocol='classic'"
        )
    flags = "".join(name for flag, name in _RE2_FLAGS.items() if pattern.flags & flag)
    return f"(?{flags}:{pattern.pattern})" if flags else pattern.pattern
