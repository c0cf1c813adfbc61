"""The two ways in which a leg's steps become one plan: a job for each micro-batch, or one that stays.

The steps are the same. A *bulk* plan runs over all Spark partitions of its process. A *resident* plan has one, and its
rows carry one more hidden column, by which the steps know where a micro-batch ends (``worker.resident``).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import StructType

from sparkrelay.runtime.compile.resident_plan import let_markers_through, resident_session
from sparkrelay.runtime.compile.schemas import arrow_schema, hidden_fields
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.contract.resident import Role, StepName
from sparkrelay.runtime.spark.jobs import REPORT_SCHEMA
from sparkrelay.runtime.worker.context import no_rows, under_names
from sparkrelay.runtime.worker.resident import resident_between, resident_last, resident_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from sparkrelay.runtime.spark.executor_target import ExecutorTarget

    Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

__all__ = ["BulkWay", "ResidentWay", "Way", "in_arrow", "no_rows_of"]


class BulkWay:
    """A job for each micro-batch."""

    #: Hidden columns that rows carry beside those of every way.
    hidden: tuple[str, ...] = ()

    def __init__(self, target: ExecutorTarget) -> None:
        self.spark_partitions = target.spark_partitions
        self._source = target.source

    def placed(self) -> DataFrame:
        """Return the placed source, of which every leg is made."""
        return self._source()

    def source(self, leg: str, step: Step, schema: StructType) -> DataFrame:
        """Return the rows that a leg's first step makes."""
        del leg
        return self.placed().mapInArrow(step, schema)

    def between(self, leg: str, rows: DataFrame, step: Step, schema: StructType) -> DataFrame:
        """Return the rows that a step of ours makes of ``rows`` and that go on to steps of the user's."""
        del leg
        return in_arrow(rows, step, schema)

    def last(self, leg: str, rows: DataFrame, step: Step) -> DataFrame:
        """Return the reports of a leg's last step."""
        del leg
        return in_arrow(rows, step, REPORT_SCHEMA)


class ResidentWay:
    """One job that stays; micro-batches pass through it."""

    hidden: tuple[str, ...] = (hidden_columns.MARKER,)
    #: Small micro-batches need no parallelism, and each Spark partition holds a core for good.
    spark_partitions: Final = 1

    def __init__(self, target: ExecutorTarget) -> None:
        self._source = target.source
        self._key = target.failure_key
        self._session: Any = None

    def placed(self) -> DataFrame:
        """Return the placed source, of one Spark partition."""
        return self._source(self.spark_partitions)

    def source(self, leg: str, step: Step, schema: StructType) -> DataFrame:
        """Return the rows that a leg's first step makes, and the markers between them."""
        named = functools.partial(resident_source, self._name(leg, Role.SOURCE), step, arrow_schema(schema))
        return self.placed().mapInArrow(named, self._marked(schema))

    def between(self, leg: str, rows: DataFrame, step: Step, schema: StructType) -> DataFrame:
        """Return the rows that a step of ours makes of ``rows``, and the markers between them."""
        named = functools.partial(resident_between, self._name(leg, Role.BETWEEN), step, arrow_schema(schema))
        return in_arrow(self._let_through(rows), named, self._marked(schema))

    def last(self, leg: str, rows: DataFrame, step: Step) -> DataFrame:
        """Return a frame that has no rows: reports go back beside it."""
        named = functools.partial(resident_last, self._name(leg, Role.LAST), step)
        return in_arrow(self._let_through(rows), named, REPORT_SCHEMA)

    def _let_through(self, rows: DataFrame) -> DataFrame:
        if self._session is None:
            self._session = resident_session(rows)
        return let_markers_through(rows, self._session)

    def _name(self, leg: str, role: Role) -> StepName:
        return StepName(leg, role, self._key)

    @staticmethod
    def _marked(schema: StructType) -> StructType:
        return StructType([*schema, *hidden_fields((hidden_columns.MARKER,))])


Way = BulkWay | ResidentWay


def in_arrow(rows: DataFrame, step: Step, schema: StructType) -> DataFrame:
    """Return ``rows.mapInArrow``, which by itself reads a dot or a backtick in a column's name as SQL does."""
    if any("." in name or "`" in name for name in rows.columns):
        step = functools.partial(under_names, step, tuple(rows.columns))
        rows = rows.toDF(*(f"column_{index}" for index in range(len(rows.columns))))
    return rows.mapInArrow(step, schema)


def no_rows_of(before: DataFrame, schema: StructType) -> DataFrame:
    """Return a frame of that schema that runs ``before`` and has no rows, which Spark does not know."""
    return in_arrow(before, no_rows, schema)
