"""Delayed streams on DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sparkrelay.errors import TopologyException
from sparkrelay.operators.delay.run import DelayRows
from sparkrelay.operators.delay.step import RECORD_TIME, Delay
from sparkrelay.operators.emitting.plan import EmittingPlan
from sparkrelay.runtime.compile.carried_columns import EMITTED
from sparkrelay.runtime.compile.catalyst import named
from sparkrelay.runtime.compile.grouping import brief, spread
from sparkrelay.runtime.compile.row_steps import checked
from sparkrelay.runtime.compile.schemas import arrow_schema, check_packable, hidden_fields, nullable, without_kafka
from sparkrelay.runtime.compile.watermarks import event_time, timed_fields
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.topology.columns import parse_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame

    from sparkrelay.topology import Leg


class Plan(EmittingPlan[Delay]):
    """See :class:`EmittingPlan`."""

    def columns(self, before: StructType) -> StructType:
        """Return the columns of the stream without Kafka's.

        Raises:
            TopologyException: a column name is ambiguous.
        """
        columns = without_kafka(before)
        twice = [name for name in columns.names if columns.names.count(name) > 1]
        if twice:
            raise TopologyException(
                f"{self.step.call_site}: {self.step.text}: two columns of the stream have the name {twice[0]!r}; use "
                "alias() before it"
            )
        return columns

    def taken(self, step: Delay, rows: DataFrame, read: frozenset[str], hidden: Iterable[str]) -> DataFrame:
        """Return columns read downstream, hidden columns, and event times; the record's timestamp in place of null."""
        hidden = [name for name in hidden if name != hidden_columns.PARTITION_TIME]
        kept = [name for name in rows.columns if name in read]
        time = F.coalesce(event_time(step, rows), F.timestamp_millis(hidden_columns.TIMESTAMP))
        micros = F.unix_micros(time).alias(hidden_columns.EVENT_MICROS)
        return checked(str(step.call_site), lambda: rows.select(*named((*kept, *hidden)), micros))

    def runner(  # noqa: PLR0917
        self,
        leg: Leg,
        taken: DataFrame,
        columns: StructType,
        read: frozenset[str],
        computed: Mapping[str, str],
        fields: Mapping[str, Any],
    ) -> tuple[DelayRows, StructType]:
        """Return the leg's runner, and its output columns."""
        row = nullable(field for field in columns if field.name in read)
        check_packable(row, f"{self.step.call_site}: {self.step.text}", "wait in a store")
        output = StructType([*row, *hidden_fields(EMITTED)])
        name = self.step.watermark[0]
        path = parse_path(name)
        time = "their timestamps" if name == RECORD_TIME else name if path is None else computed.get(path[0], name)
        made = DelayRows(
            **fields,
            **timed_fields(leg, self.step, taken, self.around),
            contents=brief(f"waiting rows of {row.simpleString()} by {time}{spread(leg, self.around.legs)}"),
            output=arrow_schema(output),
            input=arrow_schema(taken.schema),
            row=arrow_schema(row),
        )
        return made, output
