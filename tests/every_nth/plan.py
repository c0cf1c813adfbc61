"""Every n-th row of a key, as the compiler plans it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType
from tests.every_nth.run import EveryNthRunner
from tests.every_nth.step import EveryNth

from sparkrelay.operators.emitting.plan import EmittingPlan
from sparkrelay.runtime.compile.carried_columns import EMITTED
from sparkrelay.runtime.compile.contents import brief, key_text, spread
from sparkrelay.runtime.compile.timed_sources import timed_fields
from sparkrelay.topology.schemas import arrow_schema, hidden_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.topology import Leg

__all__ = ["Plan"]


class Plan(EmittingPlan[EveryNth]):
    """See :class:`EmittingPlan`."""

    def needs(self, read: frozenset[str]) -> frozenset[str]:
        """Return key columns, and columns read downstream."""
        return read | {*self.step.columns}

    def runner(
        self, leg: Leg, taken: StructType, read: frozenset[str], fields: Mapping[str, Any]
    ) -> tuple[EveryNthRunner, StructType]:
        """Return the leg's runner, and its output columns."""
        del taken
        output = StructType([*(field for field in self.step.made if field.name in read), *hidden_fields(EMITTED)])
        keys = ", ".join(key_text(leg.taken, name) for name in self.step.columns)
        made = EveryNthRunner(
            **fields,
            **timed_fields(leg, self.step, self.around),
            contents=brief(f"number of rows by {keys}{spread(leg, self.around.legs)}"),
            output=arrow_schema(output),
            keys=self.step.columns,
            n=self.step.n,
        )
        return made, output
