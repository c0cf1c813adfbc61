"""Stateful processors in the topology."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from sparkrelay import hidden_columns
from sparkrelay.operators.emitting.step import EmittingStep

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.event_time import EventTime

#: Prefix of the grouping columns, which may be computed.
KEY: Final = hidden_columns.PREFIX + "group_"


@dataclass(frozen=True, slots=True, eq=False)
class Transformation(EmittingStep):
    """A stateful step that passes each group's rows to the user's processor.

    Attributes:
        store: the store of its variables and timers; the changelog is named after it.
        keys: what the grouping columns are called.
        processor: PySpark's ``StatefulProcessor``.
        made: its output columns.
        time_mode: ``none``, ``processingtime`` or ``eventtime``.
        in_pandas: True if it takes and returns pandas DataFrames, False for rows.
        watermark: what event times are, and how late they may come; None: it does not use event time.
        call_site: the user's line.
        text: the step for messages.
        tick_ms: the interval of ``handleTick``, in ms, or None.
    """

    store: str
    keys: tuple[str, ...]
    processor: Any
    made: StructType
    time_mode: str
    in_pandas: bool
    watermark: EventTime | None
    call_site: CallSite
    text: str
    tick_ms: int | None = None
    logged: bool = True

    holds: ClassVar[str] = "the variables and timers of a stateful processor"
    kind: ClassVar[str] = "transformation"
    names_topic: ClassVar[bool] = True
    keeps_times: ClassVar[bool] = False

    @property
    def words(self) -> tuple[str, ...]:
        """Parts of the store's name."""
        return "transformed", "by", *self.keys

    @property
    def goes_by_clock(self) -> bool:
        """Whether timers and expiry use processing time."""
        return self.time_mode == "processingtime"
