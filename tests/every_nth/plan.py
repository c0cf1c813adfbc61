"""Every n-th row of a key, on DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType
from sparkrelay.runtime.compile.catalyst import named
from sparkrelay.runtime.compile.grouping import brief, key_text
from sparkrelay.runtime.compile.schemas import arrow_schema, check_groupable, hidden_fields
from sparkrelay.runtime.compile.watermarks import timed_fields
from tests.every_nth.run import EveryNthRunner
from tests.every_nth.step import EveryNth

from sparkrelay.operators.emitting.plan import EmittingPlan
from sparkrelay.runtime.compile.carried_columns import EMITTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame

    from sparkrelay.topology import Leg

__all__ = ["Plan"]


class Plan(EmittingPlan[EveryNth]):
    """See :class:`EmittingPlan`."""

    def columns(self, before: StructType) -> StructType:
        """Return the unchanged columns of the stream."""
        where = f"{self.step.call_site}: {self.step.text}"
        check_groupable(StructType([before[name] for name in self.step.columns]), where)
        return before

    def taken(self, step: EveryNth, rows: DataFrame, read: frozenset[str], hidden: Iterable[str]) -> DataFrame:
        """Return key columns, columns read downstream, and hidden columns."""
        kept = [name for name in rows.columns if name in read or name in step.columns]
        return rows.select(*named((*kept, *hidden)))

    def runner(
        self,
        leg: Leg,
        taken: DataFrame,
        columns: StructType,
        read: frozenset[str],
        computed: Mapping[str, str],
        fields: Mapping[str, Any],
    ) -> tuple[EveryNthRunner, StructType]:
        """Return the leg's runner, and its output columns."""
        output = StructType([*(field for field in columns if field.name in read), *hidden_fields(EMITTED)])
        keys = ", ".join(key_text(taken.schema[name], computed) for name in self.step.columns)
        made = EveryNthRunner(
            **fields,
            **timed_fields(leg, self.step, taken, self.around),
            contents=brief(f"number of rows by {keys}"),
            output=arrow_schema(output),
            keys=self.step.columns,
            n=self.step.n,
        )
        return made, output
