"""Deduplication, as the compiler plans it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from sparkrelay import hidden_columns
from sparkrelay.operators.dedup.run import Deduplicate
from sparkrelay.operators.dedup.step import Deduplication
from sparkrelay.operators.emitting.plan import EmittingPlan
from sparkrelay.runtime.compile.carried_columns import EMITTED
from sparkrelay.runtime.compile.contents import brief, key_text, spread
from sparkrelay.runtime.compile.timed_sources import timed_fields
from sparkrelay.topology.schemas import arrow_schema, hidden_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.topology import Leg


class Plan(EmittingPlan[Deduplication]):
    """See :class:`EmittingPlan`."""

    def needs(self, read: frozenset[str]) -> frozenset[str]:
        """Return key columns, columns read downstream, and event times."""
        times = () if self.step.watermark is None else (hidden_columns.EVENT_MICROS,)
        return read | {*self.step.columns, *times}

    def runner(
        self, leg: Leg, taken: StructType, read: frozenset[str], fields: Mapping[str, Any]
    ) -> tuple[Deduplicate, StructType]:
        """Return the leg's runner, and its output columns."""
        step = self.step
        output = StructType([*(field for field in step.made if field.name in read), *hidden_fields(EMITTED)])
        made = Deduplicate(
            **fields,
            **timed_fields(leg, step, self.around),
            contents=_contents(step, leg, spread(leg, self.around.legs)),
            output=arrow_schema(output),
            keys=step.columns,
            input=arrow_schema(taken),
            within=step.within,
        )
        return made, output


def _contents(step: Deduplication, leg: Leg, by: str) -> str:
    """Describe the store's contents; a pipeline with another description is rejected."""
    until = "for ever"
    if step.watermark is not None:
        until = (
            f"{'within the watermark of' if step.within else 'until the watermark has passed'} {step.watermark.column}"
        )
    keys = ", ".join(key_text(leg.taken, name) for name in step.columns)
    without = "" if step.logged else ", without changelog"
    return brief(f"first rows by {keys} {until}{without}{by}")
