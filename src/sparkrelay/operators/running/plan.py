"""Running aggregates, as the compiler plans them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from sparkrelay import hidden_columns
from sparkrelay.operators.emitting.plan import EmittingPlan
from sparkrelay.operators.running.run import RunningRunner
from sparkrelay.operators.running.step import Running
from sparkrelay.runtime.compile.carried_columns import EMITTED
from sparkrelay.runtime.compile.contents import brief, key_text, spread
from sparkrelay.runtime.compile.timed_sources import timed_fields
from sparkrelay.topology.schemas import arrow_schema, check_packable, hidden_fields, nullable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.topology import Leg


class Plan(EmittingPlan[Running]):
    """See :class:`EmittingPlan`."""

    def needs(self, read: frozenset[str]) -> frozenset[str]:
        """Return key columns, arguments, event times, and columns read downstream."""
        step = self.step
        times = () if step.watermark is None else (hidden_columns.EVENT_MICROS,)
        return (read - {call.name for call in step.calls}) | {*step.columns, *step.arguments, *times}

    def runner(
        self, leg: Leg, taken: StructType, read: frozenset[str], fields: Mapping[str, Any]
    ) -> tuple[RunningRunner, StructType]:
        """Return the leg's runner, and its output columns."""
        step, where = self.step, f"{self.step.call_site}: {self.step.text}"
        output = StructType([*(field for field in step.made if field.name in read), *hidden_fields(EMITTED)])
        arguments = [field for field in taken if field.name in step.arguments]
        row = [field for field in taken if field.name in {*step.columns, *read} and field not in arguments]
        hidden = [StructField(hidden_columns.KEY, BinaryType())]
        if step.watermark is not None:
            arguments.append(StructField(hidden_columns.EVENT_MICROS, LongType()))
        held = nullable([*row, *arguments, *hidden])
        check_packable(held, where, "be kept in a store")
        made = RunningRunner(
            **fields,
            **timed_fields(leg, step, self.around),
            contents=self._contents(leg, held),
            output=arrow_schema(output),
            input=arrow_schema(taken),
            keys=step.columns,
            row=arrow_schema(held),
            # Without a column it would not be known how many rows there are.
            reached=arrow_schema(held if step.ahead else nullable(arguments or row[:1])),
            calls=step.calls,
            ahead=step.ahead,
        )
        return made, output

    def _contents(self, leg: Leg, held: StructType) -> str:
        """Describe the store's contents; a pipeline with another description is rejected."""
        step = self.step
        keys = ", ".join(key_text(leg.taken, name) for name in step.columns)
        by = "arrival" if step.watermark is None else step.watermark.column
        without = "" if step.logged else ", without changelog"
        rows = held.simpleString()
        return brief(f"{step.text} by {keys}, in the order of {by}, of {rows}{without}{spread(leg, self.around.legs)}")
