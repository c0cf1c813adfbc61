"""A stream that a stateful processor of the user's makes, as the topology has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sparkrelay.operators.emitting.step import EmittingStep

if TYPE_CHECKING:
    from sparkrelay.topology.call_site import CallSite

__all__ = ["Transformation"]


@dataclass(frozen=True, slots=True, eq=False)
class Transformation(EmittingStep):
    """The stateful step of a leg whose rows go, group by group, to a stateful processor of the user's.

    Attributes:
        store: the store of the processor's variables and timers; the runtime composes the changelog's name from it.
        keys: the grouping columns, as the user wrote them.
        key_texts: the same as text.
        key_words: the same in a name.
        processor: PySpark's ``StatefulProcessor``.
        output: the columns of the rows that it returns: a ``StructType``, or the same as text.
        time_mode: ``none``, ``processingtime`` or ``eventtime``.
        in_pandas: True where it takes and returns pandas' DataFrames, False for rows.
        watermark: column of event times, and how late rows may come; None: it does not go by event time.
        call_site: the line that wrote it.
        text: the step as people read it.
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
        """What the store's name says of it."""
        return "transformed", "by", *self.key_words

    @property
    def parts(self) -> tuple[str, ...]:
        """What all instances must agree on."""
        return (self.text, self.store, *self.key_texts, *(self.watermark or ()))

    @property
    def goes_by_clock(self) -> bool:
        """Whether timers and expiry go by processing time."""
        return self.time_mode == "processingtime"
