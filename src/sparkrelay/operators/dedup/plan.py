"""Deduplication on DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sparkrelay.errors import TopologyException
from sparkrelay.operators.dedup.run import Deduplicate
from sparkrelay.operators.dedup.step import Deduplication
from sparkrelay.operators.emitting.plan import EmittingPlan
from sparkrelay.runtime.compile.carried_columns import EMITTED
from sparkrelay.runtime.compile.catalyst import named
from sparkrelay.runtime.compile.column_names import columns_there_are
from sparkrelay.runtime.compile.grouping import brief, key_text, spread
from sparkrelay.runtime.compile.row_steps import checked
from sparkrelay.runtime.compile.schemas import arrow_schema, check_groupable, hidden_fields
from sparkrelay.runtime.compile.watermarks import event_time, timed_fields
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.topology.columns import parse_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame

    from sparkrelay.topology import Leg


class Plan(EmittingPlan[Deduplication]):
    """See :class:`EmittingPlan`."""

    def columns(self, before: StructType) -> StructType:
        """Return the unchanged columns of the stream.

        Raises:
            TopologyException: a key column is missing or has an unsuitable type; or a column name is ambiguous.
        """
        where = f"{self.step.call_site}: {self.step.text}"
        for name in self.step.columns:
            if name not in before.names:
                there_are = columns_there_are(before.names, name)
                raise TopologyException(f"{where}: the stream has no column {name!r}; it has {there_are}")
        twice = [name for name in before.names if before.names.count(name) > 1]
        if twice:
            raise TopologyException(
                f"{where}: two columns of the stream have the name {twice[0]!r}; use alias() before it"
            )
        check_groupable(StructType([before[name] for name in self.step.columns]), where)
        return before

    def taken(self, step: Deduplication, rows: DataFrame, read: frozenset[str], hidden: Iterable[str]) -> DataFrame:
        """Return key columns, columns read downstream, hidden columns, and event times."""
        hidden = [name for name in hidden if name not in {hidden_columns.PARTITION_TIME, hidden_columns.TOMBSTONE}]
        kept = [name for name in rows.columns if name in read or name in step.columns]
        times = []
        if step.watermark is not None:
            times.append(F.unix_micros(event_time(step, rows)).alias(hidden_columns.EVENT_MICROS))
        return checked(str(step.call_site), lambda: rows.select(*named((*kept, *hidden)), *times))

    def runner(  # noqa: PLR0917
        self,
        leg: Leg,
        taken: DataFrame,
        columns: StructType,
        read: frozenset[str],
        computed: Mapping[str, str],
        fields: Mapping[str, Any],
    ) -> tuple[Deduplicate, StructType]:
        """Return the leg's runner, and its output columns."""
        output = StructType([*(field for field in columns if field.name in read), *hidden_fields(EMITTED)])
        made = Deduplicate(
            **fields,
            **timed_fields(leg, self.step, taken, self.around),
            contents=_contents(self.step, taken, computed, spread(leg, self.around.legs)),
            output=arrow_schema(output),
            keys=self.step.columns,
            input=arrow_schema(taken.schema),
            within=self.step.within,
        )
        return made, output


def _contents(first: Deduplication, taken: DataFrame, computed: Mapping[str, str], by: str) -> str:
    """Describe the store's contents; a pipeline with another description is rejected."""
    until = "for ever"
    if first.watermark is not None:
        path = parse_path(first.watermark[0])
        time = first.watermark[0] if path is None else computed.get(path[0], first.watermark[0])
        until = f"{'within the watermark of' if first.within else 'until the watermark has passed'} {time}"
    keys = ", ".join(key_text(taken.schema[name], computed) for name in first.columns)
    without = "" if first.logged else ", without changelog"
    return brief(f"first rows by {keys} {until}{without}{by}")
