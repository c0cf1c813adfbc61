"""The two kinds of Spark jobs that run a leg: one for each micro-batch, or a resident one.

Both run the same steps. A *bulk* job uses all Spark partitions of its process. A *resident* job has one, and its rows
have a further hidden column that marks the end of each micro-batch (``worker.resident``).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.types import StructType

from sparkrelay import hidden_columns
from sparkrelay.catalyst.frames import analyzed, frame_of, project
from sparkrelay.catalyst.jvm import items, kind
from sparkrelay.runtime.contract.resident import Role, StepName
from sparkrelay.runtime.spark.jobs import REPORT_SCHEMA
from sparkrelay.runtime.worker.context import in_pieces, no_rows, under_names
from sparkrelay.runtime.worker.resident import resident_steps
from sparkrelay.topology.schemas import arrow_schema, hidden_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from sparkrelay.runtime.spark.executor_target import ExecutorTarget

    Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: The JVM ends an Arrow batch at this size; a marker is longer.
ARROW_BYTES: Final = 64 << 10


class Stage(NamedTuple):
    """A Python stage.

    Attributes:
        start: its input; None for a source.
        step: a step of ours, or several in sequence.
        names: their names, in a resident job.
        columns: of the rows that it makes.
    """

    start: DataFrame | None
    step: Step
    names: tuple[StepName, ...]
    columns: StructType


class BulkJob:
    """A job for each micro-batch."""

    #: Further hidden columns of rows.
    hidden: tuple[str, ...] = ()

    def __init__(self, target: ExecutorTarget) -> None:
        self.spark_partitions = target.spark_partitions
        self._target = target

    def placed(self) -> DataFrame:
        """Return the placed source, where every leg begins."""
        return self._target.source()

    def made(self, stage: Stage) -> DataFrame:
        """Return the rows of a stage, for Spark to compute on."""
        columns = StructType([*stage.columns, *hidden_fields(self.hidden)])
        return self._run(stage, arrow_schema(stage.columns), columns)

    def reports(self, stage: Stage) -> DataFrame:
        """Return the reports of a leg's last step."""
        return self._run(stage, None, REPORT_SCHEMA)

    def taken(self, rows: DataFrame, names: Sequence[str]) -> DataFrame:
        """Return the input of a stage: these columns of rows that Spark computes."""
        there = rows.columns
        if there == [*names]:
            return rows
        plan = analyzed(rows)
        output = plan.output()
        kept = [output.apply(there.index(name)) for name in names]
        return frame_of(project(kept, plan), rows.sparkSession, rows._jdf.sparkSession())

    def names(self, leg: str, role: Role) -> tuple[StepName, ...]:
        """Return the name of a step, in a resident job."""
        del leg, role
        return ()

    def _run(self, stage: Stage, made: pa.Schema | None, schema: StructType) -> DataFrame:
        start = self.placed() if stage.start is None else stage.start
        return in_arrow(start, self._iterated(stage, made), schema)

    def _iterated(self, stage: Stage, made: pa.Schema | None) -> Step:
        """Return what Spark runs; ``made`` is the schema of its rows, None for reports."""
        del made
        return functools.partial(in_pieces, stage.step)


class ResidentJob(BulkJob):
    """One resident job, which micro-batches pass through with markers between them. Its reports are sent separately."""

    hidden = (hidden_columns.MARKER,)

    def __init__(self, target: ExecutorTarget) -> None:
        super().__init__(target)
        # Small micro-batches need no parallelism, and each Spark partition occupies a core permanently.
        self.spark_partitions = 1
        self._session: Any = None

    def placed(self) -> DataFrame:
        """Return the placed source, with one Spark partition."""
        rows = self._target.source(self.spark_partitions)
        if self._session is None:
            self._session = _resident_session(rows)
        return frame_of(analyzed(rows), rows.sparkSession, self._session)

    def names(self, leg: str, role: Role) -> tuple[StepName, ...]:
        """Return the name of a step."""
        return (StepName(leg, role, self._target.failure_key),)

    def _iterated(self, stage: Stage, made: pa.Schema | None) -> Step:
        return functools.partial(resident_steps, stage.names, stage.step, made)


def _resident_session(frame: DataFrame) -> Any:
    """Return a JVM session with the settings of the frame's session, and those that markers need."""
    session = frame.sparkSession._jsparkSession.cloneSession()
    session.conf().set("spark.sql.execution.arrow.maxBytesPerBatch", str(ARROW_BYTES))
    # Otherwise Spark merges legs of one partition each into one partition, where they run in sequence.
    session.conf().set("spark.sql.unionOutputPartitioning", "false")
    # Otherwise common subexpressions after an "or" are evaluated before it, on markers too.
    session.conf().set("spark.sql.subexpressionElimination.skipForShortcutExpr", "true")
    return session


def in_arrow(rows: DataFrame, step: Step, schema: StructType) -> DataFrame:
    """Return ``rows.mapInArrow``, also if column names have dots or backticks, which it parses as SQL, or are alike."""
    names = {name.lower() for name in rows.columns}
    if len(names) < len(rows.columns) or any("." in name or "`" in name for name in rows.columns):
        step = functools.partial(under_names, step, tuple(rows.columns))
        rows = rows.toDF(*(f"column_{index}" for index in range(len(rows.columns))))
    return rows.mapInArrow(step, schema)


def nothing_passes(rows: DataFrame) -> bool:
    """Return whether Spark knows that there are no rows, whatever comes: ``where(F.lit(False))``."""
    leaves = items(rows._jdf.queryExecution().optimizedPlan().collectLeaves())
    return all(kind(leaf) == "LocalRelation" for leaf in leaves)


def no_rows_of(before: DataFrame, schema: StructType) -> DataFrame:
    """Return a frame that runs ``before`` and has no rows, which Spark cannot know."""
    return in_arrow(before, no_rows, schema)
