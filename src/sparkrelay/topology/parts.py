"""What a leg is made of between its source, its stateful step and its end: frozen values, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sparkrelay import hidden_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.event_time import EventTime
    from sparkrelay.topology.rows import Rows


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Row-wise steps of a leg.

    Attributes:
        rows: behind them, as they were analysed over the leaf of the node before.
        names: what the columns are called behind them: as the next node calls them.
        steps: the steps in words, the first one first; the same in every process that runs the same program.
        deletes: for each of the steps, in front of a table that holds the rows behind them, the places of the columns
            that hold its key: what does not pass a filter there deletes. Empty for all other rows.
    """

    rows: Rows
    names: tuple[str, ...]
    steps: tuple[str, ...] = ()
    deletes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """A stateful step that changes no state: each row gets what a table holds for its key.

    Attributes:
        store: the table's, which a leg of the same subtopology keeps, or every process.
        columns: the key's columns, in the table's order, as the rows call them; none: each row gets all rows.
        given: the columns that come from the table, as they are called behind it; or the one for all rows.
        found: the column behind it that says whether the table has the key.
        how: ``inner`` leaves rows out whose key the table does not have, ``left`` gives them nulls.
        call_site: the line that wrote it.
        text: the step as people read it.
        is_global: True for a global table, which every process keeps.
        as_of: True for a table with a history: each row finds what was there at its own time.
        watermark: what these times are; None: they are the records' timestamps.
        grace: for how long rows have waited in front of it, such as ``"5 minutes"``; or None.
    """

    store: str
    columns: tuple[str, ...]
    given: StructType
    found: str
    how: str
    call_site: CallSite
    text: str
    is_global: bool = False
    as_of: bool = False
    watermark: EventTime | None = None
    grace: str | None = None

    kind: ClassVar[str] = "join"

    @property
    def times(self) -> tuple[str, ...]:
        """The hidden column of the times as of which rows look, if it is not their records' timestamps."""
        return () if self.watermark is None else (hidden_columns.EVENT_TIME,)


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """A join with a DataFrame that is collected, and again after a while.

    Attributes:
        frame: the DataFrame: the columns that are equal to those of the rows, then the others.
        keys: names of those columns of the rows.
        given: names of the others, behind the join.
        how: ``inner`` or ``left``.
        refresh: after which time it is collected again.
        columns: of the rows behind it.
        call_site: the line that wrote it.
        text: the step as people read it.
    """

    frame: DataFrame
    keys: tuple[str, ...]
    given: tuple[str, ...]
    how: str
    refresh: str
    columns: StructType
    call_site: CallSite
    text: str

    kind: ClassVar[str] = "join"


#: What a leg is made of between its source, its stateful step and its end.
Part = Segment | Lookup | Collected
