"""The two ways in which a leg's steps become one plan: a job for each micro-batch, or one that stays.

The steps are the same. A *bulk* plan runs over all Spark partitions of its process. A *resident* plan has one, and its
rows carry one more hidden column, by which the steps know where a micro-batch ends (``worker.resident``).
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
from sparkrelay.runtime.worker.context import Passage, in_pieces, in_turn, no_rows, under_names
from sparkrelay.runtime.worker.resident import resident_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from sparkrelay.runtime.spark.executor_target import ExecutorTarget

    Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

__all__ = ["BulkWay", "ResidentWay", "Way", "in_arrow", "no_rows_of"]

#: Of stages that are remembered; a leg has a few.
_MOST_STAGES: Final = 64


class _Stage(NamedTuple):
    """A Python stage, whose rows go on to Catalyst.

    Attributes:
        start: the rows that it takes; None: it makes them.
        step: what it does: a step of ours, or several that follow one another.
        names: of these, in a resident plan.
    """

    start: DataFrame | None
    step: Step
    names: tuple[StepName, ...] = ()

    def followed_by(self, passage: Passage, step: Step, *names: StepName) -> _Stage:
        """Return the stage with one more step, which takes what passes of its rows."""
        return _Stage(self.start, functools.partial(in_turn, self.step, passage, step), (*self.names, *names))


class _Stages:
    """Which frames are rows of which Python stage.

    Where no work of Catalyst's stands between two steps of ours, the second one is taken into the stage of the first:
    rows need not go through the JVM, which takes more time than most steps, and there is one Python worker less.
    """

    def __init__(self) -> None:
        self._made: OrderedDict[int, _Stage] = OrderedDict()

    def made(self, stage: _Stage, rows: DataFrame) -> DataFrame:
        """Note whose rows a frame holds; returns it."""
        self._made[analyzed(rows).output[0].number] = stage
        if len(self._made) > _MOST_STAGES:
            self._made.popitem(last=False)
        return rows

    def before(self, rows: DataFrame) -> tuple[_Stage, Passage] | None:
        """Return the stage that makes these rows, and what they are of its own; None: Catalyst computes some of it."""
        picked = picked_rows(rows)
        stage = None if picked is None else self._made.get(picked.of)
        if picked is None or stage is None:
            return None
        types = arrow_schema(rows.schema)
        shown = {name: of for name, of in picked.columns.items() if name != hidden_columns.MARKER}
        return stage, Passage(
            tuple((name, of, types.field(name).type) for name, of in shown.items()), picked.conditions
        )


class BulkWay:
    """A job for each micro-batch."""

    #: Hidden columns that rows carry beside those of every way.
    hidden: tuple[str, ...] = ()

    def __init__(self, target: ExecutorTarget) -> None:
        self.spark_partitions = target.spark_partitions
        self._source = target.source
        self._stages = _Stages()

    def placed(self) -> DataFrame:
        """Return the placed source, of which every leg is made."""
        return self._source()

    def source(self, leg: str, step: Step, schema: StructType) -> DataFrame:
        """Return the rows that a leg's first step makes."""
        del leg
        return self._made(_Stage(None, step), schema)

    def between(self, leg: str, rows: DataFrame, step: Step, schema: StructType) -> DataFrame:
        """Return the rows that a step of ours makes of ``rows`` and that go on to steps of the user's."""
        del leg
        return self._made(self._stage(rows, step), schema)

    def last(self, leg: str, rows: DataFrame, step: Step) -> DataFrame:
        """Return the reports of a leg's last step."""
        del leg
        return self._run(self._stage(rows, step), REPORT_SCHEMA)

    def _stage(self, rows: DataFrame, step: Step) -> _Stage:
        if (before := self._stages.before(rows)) is None:
            return _Stage(rows, step)
        stage, passage = before
        return stage.followed_by(passage, step)

    def _made(self, stage: _Stage, schema: StructType) -> DataFrame:
        return self._stages.made(stage, self._run(stage, schema))

    def _run(self, stage: _Stage, schema: StructType) -> DataFrame:
        step = functools.partial(in_pieces, stage.step)
        return in_arrow(self.placed() if stage.start is None else stage.start, step, schema)


class ResidentWay:
    """One job that stays; micro-batches pass through it."""

    hidden: tuple[str, ...] = (hidden_columns.MARKER,)
    #: Small micro-batches need no parallelism, and each Spark partition holds a core for good.
    spark_partitions: Final = 1

    def __init__(self, target: ExecutorTarget) -> None:
        self._source = target.source
        self._key = target.failure_key
        self._session: Any = None
        self._stages = _Stages()

    def placed(self) -> DataFrame:
        """Return the placed source, of one Spark partition."""
        return self._let_through(self._source(self.spark_partitions))

    def source(self, leg: str, step: Step, schema: StructType) -> DataFrame:
        """Return the rows that a leg's first step makes, and the markers between them."""
        return self._made(_Stage(None, step, (self._name(leg, Role.SOURCE),)), schema)

    def between(self, leg: str, rows: DataFrame, step: Step, schema: StructType) -> DataFrame:
        """Return the rows that a step of ours makes of ``rows``, and the markers between them."""
        return self._made(self._stage(rows, step, self._name(leg, Role.BETWEEN)), schema)

    def last(self, leg: str, rows: DataFrame, step: Step) -> DataFrame:
        """Return a frame that has no rows: reports go back beside it."""
        stage = self._stage(rows, step, self._name(leg, Role.LAST))
        return self._run(stage, None, REPORT_SCHEMA)

    def _stage(self, rows: DataFrame, step: Step, name: StepName) -> _Stage:
        if (before := self._stages.before(rows)) is not None:
            stage, passage = before
            return stage.followed_by(passage, step, name)
        return _Stage(self._let_through(rows), step, (name,))

    def _let_through(self, rows: DataFrame) -> DataFrame:
        """Return rows in the session of resident jobs, with markers between them."""
        if self._session is None:
            self._session = resident_session(rows)
        return let_markers_through(rows, self._session)

    def _made(self, stage: _Stage, schema: StructType) -> DataFrame:
        marked = StructType([*schema, *hidden_fields((hidden_columns.MARKER,))])
        return self._stages.made(stage, self._run(stage, arrow_schema(schema), marked))

    def _run(self, stage: _Stage, made: pa.Schema | None, schema: StructType) -> DataFrame:
        steps = functools.partial(resident_steps, stage.names, stage.step, made)
        return in_arrow(self.placed() if stage.start is None else stage.start, steps, schema)

    def _name(self, leg: str, role: Role) -> StepName:
        return StepName(leg, role, self._key)


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
