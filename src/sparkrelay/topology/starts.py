"""Where a topic is read first: ``starting=`` of a source, options of a ``readStream``, offsets that are set by hand.

The reset policies of Kafka Streams (KIP-1106) and the starting offsets of Structured Streaming.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from sparkrelay.client.admin import EARLIEST, LATEST
from sparkrelay.errors import TopologyException

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_AGO: Final = re.compile(r"(?P<count>[0-9]{1,9}) (?P<unit>second|minute|hour|day|week)s? ago", re.IGNORECASE)
_UNIT_MS: Final = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000, "week": 604_800_000}
_ENDS: Final = {"earliest": EARLIEST, "latest": LATEST}
#: As Structured Streaming writes the ends of a partition.
_SPARK_ENDS: Final = {-2: "earliest", -1: "latest"}
_EXAMPLE: Final = '{"%s": {"0": 23, "1": -2}}'
_KNOWN: Final = '"earliest", "latest", a time such as "2026-11-28T12:00:00Z", or "24 hours ago"'


@dataclass(frozen=True, slots=True)
class Start:
    """A place in a partition: an offset, an end of the log, a time, or so long before now.

    Attributes:
        text: as it is shown.
        offset: the offset; None for the others.
        listed: ``EARLIEST``, ``LATEST`` or milliseconds since 1970, as ListOffsets takes it; None for the others.
        ago_ms: how long before now; None for the others.
    """

    text: str
    offset: int | None = None
    listed: int | None = None
    ago_ms: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the place that a text says: an end, a time in ISO 8601, or so long ago.

        Raises:
            ValueError: it says none; what is wrong.
        """
        lowered = text.strip().lower()
        if lowered in _ENDS:
            return cls(lowered, listed=_ENDS[lowered])
        if (ago := _AGO.fullmatch(lowered)) is not None:
            return cls(lowered, ago_ms=int(ago["count"]) * _UNIT_MS[ago["unit"]])
        try:
            moment = dt.datetime.fromisoformat(text.strip())
        except ValueError:
            raise ValueError(f"must be {_KNOWN}") from None
        return cls.at(moment, text)

    @classmethod
    def at(cls, moment: dt.datetime, text: str) -> Self:
        """Return a time as a place.

        Raises:
            ValueError: it has no time zone, or no record can have it.
        """
        if moment.tzinfo is None:
            raise ValueError("has no time zone: append Z for UTC, or an offset such as +01:00")
        milliseconds = int(moment.timestamp() * 1000)
        if milliseconds < 0:
            raise ValueError("is before 1970, the earliest time of a record")
        return cls(text, listed=milliseconds)

    @classmethod
    def of(cls, given: Any) -> Self:
        """Return the place that an offset, a text or a datetime says.

        Raises:
            ValueError: it says none; what is wrong.
        """
        if isinstance(given, str):
            return cls.parse(given)
        if isinstance(given, dt.datetime):
            return cls.at(given, given.isoformat())
        if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 1 << 63:
            return cls(str(given), offset=given)
        raise ValueError(f"must be {_KNOWN}, a datetime or an offset")

    def listed_at(self, now_ms: int) -> int | None:
        """Return what to ask ListOffsets for; None for an offset."""
        return self.listed if self.ago_ms is None else max(0, now_ms - self.ago_ms)


@dataclass(frozen=True, slots=True)
class TopicStart:
    """Where the partitions of one topic are read first.

    Attributes:
        every: of all partitions; None where ``partitions`` names each.
        partitions: of single partitions, by number.
    """

    every: Start | None = None
    partitions: Mapping[int, Start] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.every is not None:
            return self.every.text
        return ", ".join(f"{number}: {start.text}" for number, start in sorted(self.partitions.items()))

    @property
    def is_beginning(self) -> bool:
        """True where all that the topic has is read."""
        return self.every is not None and self.every.listed == EARLIEST

    def of(self, number: int) -> Start | None:
        """Return where a partition is read first; None where nothing says so."""
        return self.every or self.partitions.get(number)


def topic_starts(given: Any, topics: Sequence[str], where: str) -> dict[str, TopicStart]:
    """Return where topics are read first.

    Args:
        given: a place for all partitions; a dict of partition -> place, of the only topic; or a dict of topic -> one
            of these. None: the settings of an instance say so. A text may be such a dict as JSON.
        topics: of the source.
        where: what messages begin with.

    Raises:
        TopologyException: it is none of these.
    """
    if given is None:
        return {}
    if isinstance(given, str) and given.lstrip().startswith("{"):
        given = _from_json(given, where)
    if not isinstance(given, Mapping) or not given:
        return dict.fromkeys(topics, TopicStart(_start(given, where)))
    if len(topics) == 1 and topics[0] not in given:
        given = {topics[0]: given}
    if unknown := sorted(str(name) for name in given if name not in topics):
        raise TopologyException(
            f"{where} names {unknown[0]}, which is not read here; give a place for all topics, or a dict of the topics "
            f"{', '.join(topics)}"
        )
    return {topic: _topic_start(one, f"{where}, {topic!r}") for topic, one in given.items()}


def spark_starting(options: Mapping[str, str], topics: Sequence[str], where: str) -> Any:
    """Return where a ``readStream`` begins as :func:`topic_starts` takes it.

    A time goes before offsets, as in Spark. A partition without a record of that time or later begins at its end.

    Args:
        options: of Spark's Kafka source, in lower case.
        topics: that it reads.
        where: what messages begin with.

    Raises:
        TopologyException: an option does not say where.
    """
    if (time := options.get("startingtimestamp")) is not None:
        return _moment(time, f"{where}: startingTimestamp={time!r}")
    if (times := options.get("startingoffsetsbytimestamp")) is not None:
        return _by_partition(times, topics, f"{where}: startingOffsetsByTimestamp={times!r}", _moment)
    offsets = options.get("startingoffsets")
    if offsets is None or not offsets.lstrip().startswith("{"):
        return offsets
    return _by_partition(offsets, topics, f"{where}: startingOffsets={offsets!r}", _place)


def _topic_start(given: Any, where: str) -> TopicStart:
    if not isinstance(given, Mapping):
        return TopicStart(_start(given, where))
    numbers = {name: _number(name, where) for name in given}
    return TopicStart(None, {numbers[name]: _start(one, f"{where}, {name}") for name, one in given.items()})


def _by_partition(text: str, topics: Sequence[str], where: str, place: Callable[[Any, str], Any]) -> Any:
    """Return what an option says that names each partition of each topic."""
    given = _from_json(text, where)
    if given.keys() != {*topics} or not all(isinstance(named, Mapping) for named in given.values()):
        raise TopologyException(
            f"{where} must name all partitions of {' and '.join(topics)}, such as {_EXAMPLE % topics[0]}"
        )
    return {topic: {n: place(value, where) for n, value in named.items()} for topic, named in given.items()}


def _start(given: Any, where: str) -> Start:
    try:
        return Start.of(given)
    except ValueError as error:
        raise TopologyException(f"{where}: {given!r} {error}") from None


def _place(given: Any, where: str) -> Any:
    del where
    return _SPARK_ENDS.get(given, given) if isinstance(given, int) else given


def _moment(given: Any, where: str) -> dt.datetime:
    text = str(given)
    if not re.fullmatch("[0-9]{1,14}", text):
        raise TopologyException(f"{where}: {given!r} must be milliseconds since 1970")
    return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=int(text))


def _number(name: Any, where: str) -> int:
    text = str(name)
    if not re.fullmatch("[0-9]{1,9}", text):
        raise TopologyException(f"{where}: {name!r} is no number of a partition")
    return int(text)


def _from_json(text: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TopologyException(f"{where} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise TopologyException(f"{where} must be an object of topics or partitions")
    return found
