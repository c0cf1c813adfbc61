"""Delayed streams, as the compiler plans them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from sparkrelay import hidden_columns
from sparkrelay.operators.delay.run import DelayRows
from sparkrelay.operators.delay.step import RECORD_TIME, Delay
from sparkrelay.operators.emitting.plan import EmittingPlan
from sparkrelay.runtime.compile.carried_columns import EMITTED
from sparkrelay.runtime.compile.contents import brief, spread
from sparkrelay.runtime.compile.timed_sources import timed_fields
from sparkrelay.topology.schemas import arrow_schema, check_packable, hidden_fields, nullable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.topology import Leg


class Plan(EmittingPlan[Delay]):
    """See :class:`EmittingPlan`."""

    def needs(self, read: frozenset[str]) -> frozenset[str]:
        """Return columns read downstream, and event times."""
        return read | {hidden_columns.EVENT_MICROS}

    def runner(
        self, leg: Leg, taken: StructType, read: frozenset[str], fields: Mapping[str, Any]
    ) -> tuple[DelayRows, StructType]:
        """Return the leg's runner, and its output columns."""
        step = self.step
        row = nullable(field for field in step.made if field.name in read)
        check_packable(row, f"{step.call_site}: {step.text}", "wait in a store")
        output = StructType([*row, *hidden_fields(EMITTED)])
        time = "their timestamps" if step.watermark.column == RECORD_TIME else step.watermark.column
        made = DelayRows(
            **fields,
            **timed_fields(leg, step, self.around),
            contents=brief(f"waiting rows of {row.simpleString()} by {time}{spread(leg, self.around.legs)}"),
            output=arrow_schema(output),
            input=arrow_schema(taken),
            row=arrow_schema(row),
        )
        return made, output
