"""Stateful steps that emit a stream, in the topology."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.event_time import EventTime


class EmittingStep:
    """A step of a leg.

    Attributes:
        store: the store's name; the changelog is named after it.
        made: the columns of what it emits.
        watermark: what event times are, and how late they may come; None: it does not use event time.
        logged: False for a store without changelog.
        call_site: the user's line.
        text: the step for messages.
        holds: the store's contents, in words.
        kind: the step in one word; all instances must agree on it.
        names_topic: True if a repartition topic just upstream is named after its store.
        keeps_times: False if its output columns are new, with unknown times.
        keeps_columns: True if its output has all input columns, including Kafka's.
    """

    __slots__ = ()

    store: str
    made: StructType
    watermark: EventTime | None
    logged: bool
    call_site: CallSite
    text: str

    holds: ClassVar[str]
    kind: ClassVar[str]
    names_topic: ClassVar[bool] = False
    keeps_times: ClassVar[bool] = True
    keeps_columns: ClassVar[bool] = False

    @property
    def by(self) -> tuple[str, ...]:
        """Names of the grouping columns, if known."""
        return getattr(self, "columns", ())

    @property
    def words(self) -> tuple[str, ...]:
        """Parts of the store's default name, after the stream's."""
        raise NotImplementedError

    def named(self, store: str) -> Self:
        """Return the step with its store's name."""
        return dataclasses.replace(self, store=store)  # type: ignore[type-var]

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that all instances must agree on."""
        return (self.text, self.store, "" if self.watermark is None else str(self.watermark))

    @property
    def goes_by_clock(self) -> bool:
        """Whether it depends on processing time."""
        return False

    @property
    def waits(self) -> str | None:
        """How long rows are buffered beyond the watermark's delay; None: not at all."""
        return None

    @property
    def endless(self) -> str | None:
        """Why its state only grows and how to bound it, for a warning; None if it is bounded."""
        return None
