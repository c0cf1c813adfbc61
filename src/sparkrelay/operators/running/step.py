"""Running aggregates in the topology."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sparkrelay.operators.emitting.step import EmittingStep

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sparkrelay.state.aggregate import AggregateSpec
    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.event_time import EventTime


@dataclass(frozen=True, slots=True)
class Frame:
    """The rows that an aggregate is of.

    Attributes:
        start: the place of the first one: ``-3`` is three rows before the current one; None: the first row of the key.
        end: the place of the last one.
        reach_us: in place of both: by how much the event time of the first one may be earlier, in µs; ``-1`` for any
            time. The last one has the current row's event time.
    """

    start: int | None = None
    end: int = 0
    reach_us: int | None = None

    @property
    def from_first(self) -> bool:
        """Whether the frame begins with the first row of the key."""
        return self.start is None if self.reach_us is None else self.reach_us < 0

    @property
    def rows_before(self) -> int:
        """How many rows before the current one must be known one by one."""
        return 0 if self.reach_us is not None else max(0, -(self.end if self.start is None else self.start))


@dataclass(frozen=True, slots=True)
class RunningColumn:
    """A column that is made.

    Attributes:
        name: its name.
        aggregate: what it is of its frame.
        frame: the frame.
        default: the column of its value where the frame has no rows; None: null, and 0 for a count.
    """

    name: str
    aggregate: AggregateSpec
    frame: Frame
    default: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Running(EmittingStep):
    """A stateful step that emits each row with aggregates of the rows around it.

    Attributes:
        store: the store's name; the changelog is named after it.
        columns: names of the key columns.
        calls: the columns that it makes.
        made: the columns of the rows and those that it makes.
        watermark: of the event times that rows are ordered by; None: by arrival.
        time: the column whose order the rows of a key have, also if they came in this order; None: that of arrival.
        logged: False for a store without changelog.
        call_site: the user's line.
        text: the step for messages.
    """

    store: str
    columns: tuple[str, ...]
    calls: tuple[RunningColumn, ...]
    made: StructType
    watermark: EventTime | None
    time: str | None
    logged: bool
    call_site: CallSite
    text: str

    holds: ClassVar[str] = "what running aggregates need of earlier rows"
    kind: ClassVar[str] = "running"
    names_topic: ClassVar[bool] = True
    keeps_columns: ClassVar[bool] = True

    @property
    def words(self) -> tuple[str, ...]:
        """Parts of the store's name."""
        return "running", "by", *self.columns

    @property
    def ahead(self) -> int:
        """How many successors a row waits for."""
        return max(0, *(call.frame.end for call in self.calls))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The columns that aggregates are of."""
        names = [name for call in self.calls for name in (call.aggregate.column, call.default) if name is not None]
        names += [name for call in self.calls for name, _ in call.aggregate.others]
        return tuple(dict.fromkeys(names))
