"""Stateful processors in the topology."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sparkrelay.operators.emitting.step import EmittingStep

if TYPE_CHECKING:
    from sparkrelay.topology.call_site import CallSite


@dataclass(frozen=True, slots=True, eq=False)
class Transformation(EmittingStep):
    """A stateful step that passes each group's rows to the user's processor.

    Attributes:
        store: the store of its variables and timers; the changelog is named after it.
        keys: the grouping columns, as the user wrote them.
        key_texts: the same as text.
        key_words: the same as parts of a name.
        processor: PySpark's ``StatefulProcessor``.
        output: its output columns: a ``StructType``, or its text.
        time_mode: ``none``, ``processingtime`` or ``eventtime``.
        in_pandas: True if it takes and returns pandas DataFrames, False for rows.
        watermark: event time column and delay; None: it does not use event time.
        call_site: the user's line.
        text: the step for messages.
    """

    store: str
    keys: tuple[Any, ...]
    key_texts: tuple[str, ...]
    key_words: tuple[str, ...]
    processor: Any
    output: Any
    time_mode: str
    in_pandas: bool
    watermark: tuple[str, str] | None
    call_site: CallSite
    text: str
    logged: bool = True

    holds: ClassVar[str] = "the variables and timers of a stateful processor"
    kind: ClassVar[str] = "transformation"
    names_topic: ClassVar[bool] = True
    keeps_times: ClassVar[bool] = False

    @property
    def words(self) -> tuple[str, ...]:
        """Parts of the store's name."""
        return "transformed", "by", *self.key_words

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that all instances must agree on."""
        return (self.text, self.store, *self.key_texts, *(self.watermark or ()))

    @property
    def goes_by_clock(self) -> bool:
        """Whether timers and expiry use processing time."""
        return self.time_mode == "processingtime"
