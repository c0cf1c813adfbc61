"""What a topology is made of. Values only: the runtime turns them into DataFrames."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.records.formats import Format

__all__ = ["Aggregation", "CallSite", "Leg", "Sink", "Source", "Step", "Subtopology", "call_site"]

_PACKAGE = str(Path(__file__).parent.parent)


@dataclass(frozen=True, slots=True)
class CallSite:
    """The user's line that wrote a step."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


def call_site() -> CallSite:
    """Return the nearest line on the stack that is not SparkRelay's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return CallSite(frame.f_code.co_filename, frame.f_lineno)


@dataclass(frozen=True, slots=True)
class Step:
    """One row-wise step, kept as it was written: strings, Columns and functions are opaque here."""

    kind: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    call_site: CallSite
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """Topics that a leg reads, and how their records become columns."""

    name: str
    topics: tuple[str, ...]
    key: Format | None
    value: Format | None
    timestamp: str | None
    internal: bool
    call_site: CallSite


@dataclass(frozen=True, slots=True)
class Aggregation:
    """The stateful step of a leg: grouping keys and aggregates, both opaque, and the store that keeps the result."""

    store: str
    keys: tuple[Any, ...]
    aggregates: tuple[Any, ...]
    call_site: CallSite
    text: str


@dataclass(frozen=True, slots=True)
class Sink:
    """The topic that a leg writes.

    Attributes:
        topic: its name; of an internal topic, without the application id that Kafka's name starts with.
        key: names of the columns that make the key; None: the key that the rows carry (message or grouping key).
        value: format of the value; None: as the rows came, else JSON of the columns.
        internal: True for a repartition topic, which carries whole rows.
        partitions: partition count asked for a repartition topic; None: as many as the source has.
    """

    topic: str
    key: tuple[str, ...] | None
    value: Format | None
    internal: bool
    call_site: CallSite
    partitions: int | None = None


@dataclass(frozen=True, slots=True)
class Leg:
    """A straight way: source, steps, at most one stateful step, steps, sink."""

    id: str
    subtopology: int
    source: Source
    before: tuple[Step, ...]
    aggregation: Aggregation | None
    after: tuple[Step, ...]
    sink: Sink | None


@dataclass(frozen=True, slots=True)
class Subtopology:
    """Legs that share source topics: they are cut into tasks together."""

    id: int
    legs: tuple[Leg, ...]

    @property
    def source_topics(self) -> tuple[str, ...]:
        """Names of the topics it reads, in order."""
        return tuple(dict.fromkeys(topic for leg in self.legs for topic in leg.source.topics))

    @property
    def stores(self) -> tuple[str, ...]:
        """Names of its stores, in order."""
        return tuple(leg.aggregation.store for leg in self.legs if leg.aggregation is not None)

    @property
    def stateful(self) -> bool:
        """True if any leg keeps a store."""
        return bool(self.stores)
