"""The two kinds of Spark jobs that run a leg: one for each micro-batch, or a resident one.

Both run the same steps. A *bulk* job uses all Spark partitions of its process. A *resident* job has one, and its rows
have a further hidden column that marks the end of each micro-batch (``worker.resident``).
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.types import StructType

from sparkrelay.runtime.compile.catalyst import analyzed
from sparkrelay.runtime.compile.picked_rows import picked_rows
from sparkrelay.runtime.compile.resident_plan import let_markers_through, resident_session
from sparkrelay.runtime.compile.schemas import arrow_schema, hidden_fields
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.contract.resident import Role, StepName
from sparkrelay.runtime.spark.jobs import REPORT_SCHEMA
from sparkrelay.runtime.worker.context import PickedColumns, in_pieces, in_turn, no_rows, under_names
from sparkrelay.runtime.worker.resident import resident_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from sparkrelay.runtime.spark.executor_target import ExecutorTarget

    Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: Number of remembered stages; a leg has a few.
_MOST_STAGES: Final = 64


class _Stage(NamedTuple):
    """A Python stage.

    Attributes:
        start: its input; None for a source.
        step: a step of ours, or several in sequence.
        names: their names, in a resident job.
    """

    start: DataFrame | None
    step: Step
    names: tuple[StepName, ...] = ()

    def followed_by(self, picked: PickedColumns, step: Step, *names: StepName) -> _Stage:
        """Return the stage with one more step."""
        return _Stage(self.start, functools.partial(in_turn, self.step, picked, step), (*self.names, *names))


class _Stages:
    """The Python stages of frames.

    If Catalyst computes nothing between two steps of ours, both run in one stage: rows skip the JVM, which costs more
    time than most steps, and there is one Python worker less.
    """

    def __init__(self) -> None:
        self._made: OrderedDict[int, _Stage] = OrderedDict()

    def made(self, stage: _Stage, rows: DataFrame) -> DataFrame:
        """Record the stage of a frame, and return the frame."""
        self._made[analyzed(rows).output[0].number] = stage
        if len(self._made) > _MOST_STAGES:
            self._made.popitem(last=False)
        return rows

    def before(self, rows: DataFrame) -> tuple[_Stage, PickedColumns] | None:
        """Return the stage of these rows, and which of its columns they are; None if Catalyst computes any."""
        picked = picked_rows(rows)
        stage = None if picked is None else self._made.get(picked.of)
        if picked is None or stage is None:
            return None
        types = arrow_schema(rows.schema)
        shown = {name: of for name, of in picked.columns.items() if name != hidden_columns.MARKER}
        return stage, PickedColumns(
            tuple((name, of, types.field(name).type) for name, of in shown.items()), picked.conditions
        )


class BulkJob:
    """A job for each micro-batch."""

    #: Further hidden columns of rows.
    hidden: tuple[str, ...] = ()

    def __init__(self, target: ExecutorTarget) -> None:
        self.spark_partitions = target.spark_partitions
        self._target = target
        self._stages = _Stages()

    def placed(self) -> DataFrame:
        """Return the placed source, where every leg begins."""
        return self._target.source()

    def source(self, leg: str, step: Step, schema: StructType) -> DataFrame:
        """Return the rows of a leg's first step."""
        return self._made(_Stage(None, step, self._names(leg, Role.SOURCE)), schema)

    def between(self, leg: str, rows: DataFrame, step: Step, schema: StructType) -> DataFrame:
        """Return the rows that a step of ours makes of ``rows``, for the user's steps."""
        return self._made(self._stage(rows, step, self._names(leg, Role.BETWEEN)), schema)

    def last(self, leg: str, rows: DataFrame, step: Step) -> DataFrame:
        """Return the reports of a leg's last step."""
        return self._run(self._stage(rows, step, self._names(leg, Role.LAST)), None, REPORT_SCHEMA)

    def _stage(self, rows: DataFrame, step: Step, names: tuple[StepName, ...]) -> _Stage:
        if (before := self._stages.before(rows)) is None:
            return _Stage(self._taken(rows), step, names)
        stage, columns = before
        return stage.followed_by(columns, step, *names)

    def _made(self, stage: _Stage, schema: StructType) -> DataFrame:
        every = StructType([*schema, *hidden_fields(self.hidden)])
        return self._stages.made(stage, self._run(stage, arrow_schema(schema), every))

    def _run(self, stage: _Stage, made: pa.Schema | None, schema: StructType) -> DataFrame:
        start = self.placed() if stage.start is None else stage.start
        return in_arrow(start, self._iterated(stage, made), schema)

    def _iterated(self, stage: _Stage, made: pa.Schema | None) -> Step:
        """Return what Spark runs; ``made`` is the schema of its rows, None for reports."""
        del made
        return functools.partial(in_pieces, stage.step)

    def _taken(self, rows: DataFrame) -> DataFrame:
        """Return the input of a stage."""
        return rows

    def _names(self, leg: str, role: Role) -> tuple[StepName, ...]:
        del leg, role
        return ()


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
        return self._taken(self._target.source(self.spark_partitions))

    def _taken(self, rows: DataFrame) -> DataFrame:
        if self._session is None:
            self._session = resident_session(rows)
        return let_markers_through(rows, self._session)

    def _iterated(self, stage: _Stage, made: pa.Schema | None) -> Step:
        return functools.partial(resident_steps, stage.names, stage.step, made)

    def _names(self, leg: str, role: Role) -> tuple[StepName, ...]:
        return (StepName(leg, role, self._target.failure_key),)


def in_arrow(rows: DataFrame, step: Step, schema: StructType) -> DataFrame:
    """Return ``rows.mapInArrow``, also if column names have dots or backticks, which it parses as SQL."""
    if any("." in name or "`" in name for name in rows.columns):
        step = functools.partial(under_names, step, tuple(rows.columns))
        rows = rows.toDF(*(f"column_{index}" for index in range(len(rows.columns))))
    return rows.mapInArrow(step, schema)


def no_rows_of(before: DataFrame, schema: StructType) -> DataFrame:
    """Return a frame that runs ``before`` and has no rows, which Spark cannot know."""
    return in_arrow(before, no_rows, schema)
