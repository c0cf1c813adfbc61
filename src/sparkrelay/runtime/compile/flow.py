"""Rows on their way through a leg: from one step of ours to the next, through the user's steps.

Where the user's steps only pick rows and columns, the next step does it itself, in the same Python stage: rows skip the
JVM, which costs more time than most steps, and there is one Python worker less.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from sparkrelay import hidden_columns
from sparkrelay.runtime.compile.job_kinds import Stage, no_rows_of, nothing_passes
from sparkrelay.runtime.compile.parsed_values import parsed_values
from sparkrelay.runtime.compile.rebase import Passing, Rebase
from sparkrelay.runtime.worker.context import PickedColumns, followed_by, in_turn
from sparkrelay.runtime.worker.parsed_values import add_parsed
from sparkrelay.topology.columns import quoted
from sparkrelay.topology.schemas import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from sparkrelay.catalyst.tree import Expression
    from sparkrelay.runtime.compile.job_kinds import BulkJob
    from sparkrelay.runtime.compile.parsed_values import ParsedValue
    from sparkrelay.runtime.contract.resident import StepName
    from sparkrelay.topology.parts import Segment
    from sparkrelay.topology.rows import Rows

    Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: The alternatives of each condition: a column, and whether it must be true, or only not null.
Conditions = tuple[tuple[tuple[str, bool], ...], ...]


@dataclass(frozen=True, slots=True)
class Flow:
    """Rows at some place of a leg.

    Attributes:
        job: the kind of Spark job.
        leg: the leg's name.
        columns: their columns, the hidden ones last.
        stage: the stage that they come out of; None where Spark computes them.
        picked: column -> what the stage calls it; None: it is null.
        conditions: that the stage's rows have to pass.
        frame: the rows that Spark computes; None: a stage has them.
        computed: the user's rows that Spark computes on the way.
        count: how many steps of ours there are before.
    """

    job: BulkJob
    leg: str
    columns: StructType
    stage: Stage | None = None
    picked: Mapping[str, str | None] | None = None
    conditions: Conditions = ()
    frame: DataFrame | None = None
    computed: tuple[Rows, ...] = ()
    count: int = 0

    @classmethod
    def begin(cls, job: BulkJob, leg: str, step: Step, names: tuple[StepName, ...], columns: StructType) -> Flow:
        """Return the rows of a leg's first step."""
        return cls._of(job, leg, Stage(None, step, names, columns), (), 1)

    @classmethod
    def _of(cls, job: BulkJob, leg: str, stage: Stage, computed: tuple[Rows, ...], count: int) -> Flow:
        picked = {name: name for name in stage.columns.names}
        return cls(job, leg, stage.columns, stage, picked, computed=computed, count=count)

    @property
    def visible(self) -> StructType:
        """The columns that are not hidden."""
        return StructType([field for field in self.columns if not field.name.startswith(hidden_columns.PREFIX)])

    @property
    def hidden(self) -> tuple[str, ...]:
        """Names of the hidden columns."""
        return tuple(name for name in self.columns.names if name.startswith(hidden_columns.PREFIX))

    @property
    def differs_each_time(self) -> str | None:
        """Why the rows must be computed by another plan in each micro-batch; None: they need not."""
        reasons = (rows.differs_each_time for rows in self.computed)
        return next((reason for reason in reasons if reason is not None), None)

    @property
    def not_resident(self) -> str | None:
        """Why the rows cannot be computed in a resident job, where markers pass between them; None: they can.

        Only projections and filters can let markers through: what else there is buffers rows, or multiplies them.
        """
        for rows in self.computed:
            for node, _ in rows.steps:
                if node.kind in {"Expand", "Generate", "Join"}:
                    return f"the plan holds {node.kind}"
                for one in (part for expression in node.expressions for part in expression.below()):
                    if "Python" in one.kind:
                        return f"{one.name}() is a Python function"
        return None

    def through(
        self, segment: Segment, needed: Collection[str], hidden: Sequence[str], *, tombstones: bool = False
    ) -> Flow:
        """Return the rows behind the user's steps.

        Args:
            segment: the steps.
            needed: which of the columns behind them anything reads.
            hidden: names of the hidden columns that go on.
            tombstones: True in front of a table of newest rows: no filter keeps a deletion from it.
        """
        rows = segment.rows
        outputs = {place: name for place, name in enumerate(segment.names) if name in needed}
        fields = rows.schema.fields
        columns = StructType(
            [
                *(StructField(name, fields[place].dataType, fields[place].nullable) for place, name in outputs.items()),
                *(field for field in self.columns if field.name in hidden),
            ]
        )
        passing = Passing(tombstones, segment.deletes)
        if self.picked is not None and (found := _picked(rows, outputs, self.picked, passing)) is not None:
            picked, conditions = found
            picked |= {name: self.picked[name] for name in hidden}
            return replace(self, columns=columns, picked=picked, conditions=(*self.conditions, *conditions))
        numbers = [rows.columns[place].number for place in outputs]
        parsed = parsed_values(rows, numbers, self.picked) if self.picked is not None and not passing.deletes else []
        base, given = self._with_fields(parsed)._computable()
        spark_hidden = (*hidden, *self.job.hidden)
        names = {name: given.get(name) for name in rows.node.leaf.columns.names}
        rebase = Rebase(rows, base, names, spark_hidden, conditions=self.conditions, passing=passing, parsed=parsed)
        frame = rebase.frame(outputs)
        if rows.may_be_empty and nothing_passes(frame):
            # Spark would run none of the steps before, and none of them would report.
            frame = no_rows_of(base, frame.schema)
        computed = (*self.computed, rows)
        return Flow(self.job, self.leg, columns, frame=frame, computed=computed, count=self.count)

    def _with_fields(self, parsed: Sequence[ParsedValue]) -> Flow:
        """Return the rows with what the worker parses."""
        if not parsed:
            return self
        assert self.stage is not None, "texts are read where they are fetched"
        columns = StructType([*self.stage.columns, *(field for one in parsed for field in one.columns)])
        step = functools.partial(
            followed_by, self.stage.step, functools.partial(add_parsed, [one.read for one in parsed])
        )
        return replace(self, stage=self.stage._replace(step=step, columns=columns))

    def null_where_deleting(self, names: Sequence[str]) -> Flow:
        """Return the rows of which those that delete have nulls in these columns."""
        if not names:
            return self
        base, given = self._computable()
        columns = [
            F.when(~F.col(given[hidden_columns.TOMBSTONE] or ""), F.col(quoted(of))).alias(name)
            if name in names
            else F.col(quoted(of)).alias(name)
            for name in self.columns.names
            if (of := given[name]) is not None
        ]
        assert not self.conditions, "a filter does not stand alone in front of computed keys"
        marker = [F.col(name) for name in self.job.hidden]
        made = StructType(
            [StructField(field.name, field.dataType) if field.name in names else field for field in self.columns]
        )
        return replace(self, columns=made, stage=None, picked=None, frame=base.select(*columns, *marker))

    def only(self, names: Collection[str]) -> Flow:
        """Return the rows with these columns, and the hidden ones among them, in the order in which they stand."""
        columns = StructType([field for field in self.columns if field.name in names])
        if self.picked is not None:
            return replace(self, columns=columns, picked={name: self.picked[name] for name in columns.names})
        return replace(self, columns=columns)

    def ordered(self, names: Sequence[str]) -> Flow:
        """Return the rows with these columns in this order."""
        return replace(self, columns=StructType([self.columns[name] for name in dict.fromkeys(names)]))

    def step(self, step: Step, names: tuple[StepName, ...], columns: StructType) -> Flow:
        """Return the rows that a step of ours makes of these."""
        return Flow._of(self.job, self.leg, self._followed(step, names, columns), self.computed, self.count + 1)

    def last(self, step: Step, names: tuple[StepName, ...]) -> DataFrame:
        """Return the reports of a leg's last step."""
        return self.job.reports(self._followed(step, names, StructType()))

    def _followed(self, step: Step, names: tuple[StepName, ...], columns: StructType) -> Stage:
        if self.stage is None:
            assert self.frame is not None
            wanted = (*self.columns.names, *self.job.hidden)
            return Stage(self.job.taken(self.frame, wanted), step, names, columns)
        assert self.picked is not None
        types = arrow_schema(self.columns)
        shown = tuple((name, self.picked[name], types.field(name).type) for name in self.columns.names)
        both = functools.partial(in_turn, self.stage.step, PickedColumns(shown, self.conditions), step)
        return Stage(self.stage.start, both, (*self.stage.names, *names), columns)

    def _computable(self) -> tuple[DataFrame, Mapping[str, str | None]]:
        """Return rows that Spark can compute on, and what they call the columns."""
        if self.stage is not None:
            assert self.picked is not None
            return self.job.made(self.stage), self.picked
        assert self.frame is not None
        return self.frame, {name: name for name in self.columns.names}


def _picked(
    rows: Rows, outputs: Mapping[int, str], known: Mapping[str, str | None], passing: Passing
) -> tuple[dict[str, str | None], Conditions] | None:
    """Return the columns and conditions if the steps only pick; None if they compute anything."""
    if passing.deletes and rows.filters:
        return None
    if any(node.kind in {"Expand", "Generate", "Join"} for node, _ in rows.steps):
        return None
    names = rows.node.leaf.columns.names

    def source(number: int) -> tuple[str | None] | None:
        copy = rows.copy(number)
        if copy is not None:
            return None if copy.fields else (known.get(names[copy.place]),)
        made = rows.made.get(number, ())
        return (None,) if len(made) == 1 and _is_null(made[0]) else None

    picked: dict[str, str | None] = {}
    for place, name in outputs.items():
        found = source(rows.columns[place].number)
        if found is None:
            return None
        picked[name] = found[0]
    conditions: Conditions = ()
    for node, _ in rows.steps:
        if node.kind == "Filter":
            some = _conditions(node.expressions[0], source)
            if some is None:
                return None
            conditions += some
    if passing.tombstones:
        tombstone = known[hidden_columns.TOMBSTONE]
        assert tombstone is not None
        conditions = tuple((*alternatives, (tombstone, True)) for alternatives in conditions)
    return picked, conditions


def _is_null(expression: Expression) -> bool:
    while expression.kind == "Cast":
        (expression,) = expression.children
    return expression.kind == "Literal" and expression.fields.get("value") is None


def _conditions(expression: Expression, source: Callable[[int], tuple[str | None] | None]) -> Conditions | None:
    """Return a filter's condition as alternatives of each of its parts; None if it has another form."""
    match expression.kind:
        case "AttributeReference":
            return _condition(expression, source, is_true=True)
        case "IsNotNull":
            (of,) = expression.children
            return _condition(of, source, is_true=False) if of.is_attribute else None
        case "And" | "Or" as how:
            left, right = (_conditions(side, source) for side in expression.children)
            if left is None or right is None:
                return None
            if how == "And":
                return left + right
            return (left[0] + right[0],) if len(left) == len(right) == 1 else None
    return None


def _condition(
    attribute: Expression, source: Callable[[int], tuple[str | None] | None], *, is_true: bool
) -> Conditions | None:
    """Return the condition that a column is true, or not null; None if the column is computed."""
    found = source(attribute.number)
    if found is None:
        return None
    return ((),) if found[0] is None else (((found[0], is_true),),)
