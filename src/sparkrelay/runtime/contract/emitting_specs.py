"""What the steps that keep a store and emit a stream are given; see :mod:`sparkrelay.runtime.contract.specs`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sparkrelay.runtime.contract.specs import StoreSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
    from pyspark.sql.types import StructType

__all__ = [
    "LEFT_ONLY",
    "DeduplicationSpec",
    "DelaySpec",
    "JoinSpec",
    "TimedSource",
    "TimedSpec",
    "TransformationSpec",
    "VariableSpec",
]

#: Ways of joining two streams that give rows of the left one alone.
LEFT_ONLY: Final = frozenset({"left_semi", "left_anti"})


@dataclass(frozen=True, slots=True)
class TimedSource:
    """One source topic of a step whose source topics have watermarks of their own.

    Attributes:
        name: under which the store keeps it.
        topic: Kafka's name of it.
        delay_ms: how much later than the newest event time a row of it may come.
    """

    name: str
    topic: str
    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedSpec(StoreSpec):
    """The store of a step that emits a stream, whose watermark is the least of its source topics' own.

    Attributes:
        output: Arrow schema of the rows that leave the step.
        delay_ms: how much later than the newest event time a row of the leg may come.
        ahead_ms: how far ahead of the machine's clock an event time may be to move the watermark.
        sources: the source topics of all the legs that keep the store; none where there is no watermark.
        own_sources: the names of those of the leg, in the order of its topics.
    """

    output: pa.Schema
    delay_ms: int
    ahead_ms: int
    sources: tuple[TimedSource, ...]
    own_sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSpec(TimedSpec):
    """How the rows of one stream are joined with those of another.

    Attributes:
        side: ``left`` or ``right``: which of the two streams the leg reads.
        how: ``inner``, ``left``, ``right``, ``full``, ``left_semi`` or ``left_anti``.
        keys: Arrow schema of the columns that are equal in rows that go together.
        rows: side -> Arrow schema of the columns that are kept of its rows, without the keys.
        earlier_us: how much earlier than the left row the right one may be, in microseconds.
        later_us: how much later it may be.
        later: topics of the legs of this join that run behind this one.
        number: of the leg among those of this join, by which its rows are told apart from theirs.
    """

    side: str
    how: str
    keys: pa.Schema
    rows: Mapping[str, pa.Schema]
    earlier_us: int
    later_us: int
    later: frozenset[str]
    number: int

    @property
    def other(self) -> str:
        """The other side."""
        return "right" if self.side == "left" else "left"

    @property
    def partners_us(self) -> tuple[int, int]:
        """How much earlier and how much later than a row of this side its partners may be, in microseconds."""
        both = self.earlier_us, self.later_us
        return both if self.side == "left" else both[::-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeduplicationSpec(TimedSpec):
    """Which rows of a stream are the first of their key.

    Attributes:
        keys: names of the columns that make the key.
        input: Arrow schema of the rows that come in.
        within: True where a key is remembered until its first row's event time and the delay are over.
    """

    keys: tuple[str, ...]
    input: pa.Schema
    within: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DelaySpec(TimedSpec):
    """How the rows of a stream wait, each until its event time is over by the watermark.

    Attributes:
        input: Arrow schema of the rows that come in.
        row: of the columns of them that are kept.
    """

    input: pa.Schema
    row: pa.Schema


@dataclass(frozen=True, slots=True)
class VariableSpec:
    """A variable of a stateful processor.

    Attributes:
        name: the user's name of it.
        kind: ``value``, ``list`` or ``map``.
        key: of a map: the columns of its keys; else None.
        value: the columns of its values.
        ttl_ms: for how long what is put into it lasts, in milliseconds; None: for ever.
    """

    name: str
    kind: str
    key: StructType | None
    value: StructType
    ttl_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformationSpec(TimedSpec):
    """How the rows of each group go to a stateful processor.

    Attributes:
        keys: Arrow schema of the grouping columns, under hidden names.
        key: the same as the processor gets them.
        row: the columns that it gets of each row.
        result: the columns that it returns; ``output`` has those of them that anything reads.
        processor: the user's.
        variables: which it has.
        time_mode: ``none``, ``processingtime`` or ``eventtime``.
        in_pandas: True where it takes and returns pandas' DataFrames.
    """

    keys: pa.Schema
    key: StructType
    row: StructType
    result: StructType
    processor: StatefulProcessor
    variables: tuple[VariableSpec, ...]
    time_mode: str
    in_pandas: bool
