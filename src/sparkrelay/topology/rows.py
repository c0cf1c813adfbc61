"""Rows of a pipeline behind row-wise steps, as Spark has analysed them over the leaf of the node that they come from.

Everything that is asked of a user's steps is asked here, of values that one call to the JVM has given: which columns
there are, what they are made of, which of the leaf's columns they read, which of them are the leaf's as they were.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from sparkrelay.catalyst.frames import analyzed, leaf_number
from sparkrelay.catalyst.remembered import remembered
from sparkrelay.catalyst.tree import read_plan
from sparkrelay.catalyst.windows import time_window
from sparkrelay.catalyst.words import window_words, words
from sparkrelay.topology.spread import Spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType

    from sparkrelay.catalyst.tree import Expression, Plan
    from sparkrelay.topology.call_site import CallSite

#: Nodes that make what they make of each row by itself, and leave it where it is.
ROW_WISE: Final = frozenset(
    {
        *("CollectMetrics", "EventTimeWatermark", "Expand", "Filter", "Generate", "PipeOperator", "Project"),
        *("ResolvedHint", "SubqueryAlias", "View"),
    }
)


#: Functions that draw.
DRAWING: Final = frozenset({"Rand", "Randn", "RandStr", "Shuffle", "Uniform", "Uuid"})
#: Functions of the time at which a plan is made.
_CURRENT: Final = frozenset(
    {"CurrentBatchTimestamp", "CurrentDate", "CurrentTime", "CurrentTimestamp", "LocalTimestamp", "Now"}
)
_READS_TIMES: Final = frozenset({"Cast", "ParseToDate", "ParseToTimestamp", "ToTime"})
_TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
_NOW_AS_TEXT: Final = re.compile(r"\s*(?:(?:now|today|tomorrow|yesterday)\b|T?\d{1,2}:)", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Leaf:
    """What stands for the rows that come out of a node, wherever the pipeline goes on from there.

    Attributes:
        number: of the leaf, which no other one of the builder has.
        frame: the rows, as a DataFrame without any.
        columns: their columns; no two have one name.
    """

    number: int
    frame: DataFrame
    columns: StructType

    @remembered
    def plan(self) -> Plan:
        """The leaf's own plan."""
        return read_plan(analyzed(self.frame))


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """A call of the user's that made rows of others.

    Attributes:
        call_site: the line that wrote it.
        method: what was called.
        frame: the rows behind it.
    """

    call_site: CallSite
    method: str
    frame: DataFrame


class RowColumn(NamedTuple):
    """A column of rows.

    Attributes:
        number: Catalyst's number of it.
        field: its name, type and metadata.
    """

    number: int
    field: StructField

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.field.name)


class Copy(NamedTuple):
    """A column that is one of the leaf's as it was, or a field of one.

    Attributes:
        place: of the leaf's column.
        fields: the fields' places, from the column to the field; none for the column itself.
    """

    place: int
    fields: tuple[int, ...] = ()


class Rows:
    """Rows behind row-wise steps over a leaf.

    Args:
        node: where they come from.
        frame: as Spark has analysed them.
        written: the calls that made them, the first one first.
        first: True where they come from the node itself although a topic behind it is where others begin.
        unsaid: how many of the last nodes of their plan are ours, and need no words.
        pending: what has to follow them before they can be used; None: nothing.
        known: a plan that theirs is, or is made of, if one was read.
    """

    def __init__(
        self,
        node: Node,
        frame: DataFrame,
        written: tuple[Written, ...] = (),
        *,
        first: bool = False,
        unsaid: int = 0,
        pending: str | None = None,
        known: Plan | None = None,
    ) -> None:
        self.pending = pending
        self._known = known
        self.node = node
        self.unsaid = unsaid
        self.frame = frame
        self.written = written
        self.first = first

    @remembered
    def plan(self) -> Plan:
        """Their plan."""
        return read_plan(analyzed(self.frame), self._known or self.node.leaf.plan)

    @property
    def known_plan(self) -> Plan | None:
        """Their plan, or one that it is made of, if one was read that is more than the leaf."""
        return self.__dict__.get("plan", self._known)

    @remembered
    def schema(self) -> StructType:
        """Their columns."""
        return self.frame.schema

    @remembered
    def columns(self) -> tuple[RowColumn, ...]:
        """Their columns, with Catalyst's numbers."""
        numbers = (column.number for column in self.plan.output)
        return tuple(map(RowColumn, numbers, self.schema.fields))

    @remembered
    def _walked(self) -> tuple[tuple[tuple[Plan, int], ...], Plan]:
        steps, at = [], self.plan
        while leaf_number(at) is None:
            place = next(place for place, child in enumerate(at.children) if any(map(_is_leaf, child.below())))
            steps.append((at, place))
            at = at.children[place]
        return tuple(reversed(steps)), at

    @property
    def steps(self) -> tuple[tuple[Plan, int], ...]:
        """The nodes of their plan above the leaf, from there up, each with which child the rows come from."""
        return self._walked[0]

    @property
    def leaf(self) -> Plan:
        """The leaf in their plan."""
        return self._walked[1]

    @remembered
    def numbers(self) -> tuple[int, ...]:
        """Catalyst's numbers of the leaf's columns, in their order."""
        return tuple(column.number for column in self.leaf.output)

    @property
    def is_leaf(self) -> bool:
        """True if no step is between these rows and their node."""
        return self.frame is self.node.leaf.frame or not self.steps

    @property
    def only_renames(self) -> bool:
        """True if they are the node's rows, with some of its columns under whatever names."""
        kinds = {node.kind for node, _ in self.steps}
        if not kinds <= {"PipeOperator", "Project", "ResolvedHint", "SubqueryAlias", "View"}:
            return False
        copies = self.copies()
        return len(copies) == len(self.columns) and not any(copy.fields for copy in copies.values())

    @property
    def is_whole(self) -> bool:
        """True if they are the node's rows with all of its columns in their order, under whatever names."""
        if self.is_leaf:
            return True
        places = [*range(len(self.node.leaf.columns))]
        return self.only_renames and [copy.place for copy in self.copies().values()] == places

    @property
    def filters(self) -> bool:
        """True if a step lets some rows through and others not."""
        return any(node.kind == "Filter" for node, _ in self.steps)

    @property
    def may_be_empty(self) -> bool:
        """True if Spark may know that nothing passes the steps: a filter that is false, a join with no rows."""
        return any(node.kind in {"Filter", "Join"} for node, _ in self.steps)

    @remembered
    def made(self) -> Mapping[int, tuple[Expression, ...]]:
        """Number of a column that a step makes -> the expression; several where one row becomes several."""
        found: dict[int, tuple[Expression, ...]] = {}
        for node, _ in self.steps:
            if node.kind == "Expand":
                for column, *ways in zip(node.output, *node.ways, strict=True):
                    if not (ways[0].is_attribute and ways[0].number == column.number):
                        found[column.number] = tuple(ways)
            elif node.kind == "Generate":
                found |= {one.number: (node.generator,) for one in node.by_field["generatorOutput"]}
            else:
                # A column under its own number, as a WITH clause has it, is passed on.
                made = (one for one in node.expressions if one.kind == "Alias")
                found |= {one.number: one.children for one in made if not _is_same(one)}
        return found

    def copy(self, number: int) -> Copy | None:
        """Return which of the leaf's columns a column is as it was; None if it is computed."""
        fields: tuple[int, ...] = ()
        while number not in self.numbers:
            made = self.made.get(number, ())
            if len(made) != 1:
                return None
            expression = made[0]
            if expression.kind == "CreateNamedStruct" and fields:
                expression, fields = expression.children[2 * fields[0] + 1], fields[1:]
            while expression.kind == "GetStructField" or _only_first(expression):
                if expression.kind == "GetStructField":
                    fields = (int(expression.fields["ordinal"]), *fields)
                expression = expression.children[0]
            if not expression.is_attribute:
                return None
            number = expression.number
        return Copy(self.numbers.index(number), fields)

    def copies(self) -> dict[int, Copy]:
        """Return the columns that are the leaf's as they were, by their places."""
        found = {place: self.copy(column.number) for place, column in enumerate(self.columns)}
        return {place: copy for place, copy in found.items() if copy is not None}

    def read(self, outputs: Iterable[int]) -> frozenset[int]:
        """Return the places of the leaf's columns that these columns, and which rows there are, depend on.

        Args:
            outputs: Catalyst's numbers of columns.
        """
        needed, _ = self._behind(outputs)
        return frozenset(place for place, number in enumerate(self.numbers) if number in needed)

    def drawn_for(self, outputs: Iterable[int]) -> str | None:
        """Return in words what is drawn that these columns, or which rows there are, depend on; None: nothing is."""
        _, expressions = self._behind(outputs)
        return next((words(one) for one in expressions if _draws(one)), None)

    def _behind(self, outputs: Iterable[int]) -> tuple[set[int], list[Expression]]:
        """Return the numbers of all that columns, and which rows there are, depend on, and the expressions of it."""
        needed, found = set(outputs), []
        for node, _ in reversed(self.steps):
            match node.kind:
                case "Project":
                    used = [one for one in node.expressions if one.number in needed]
                    needed = _read_by(used)
                case "Expand":
                    kept = [place for place, column in enumerate(node.output) if column.number in needed]
                    used = [way[place] for way in node.ways for place in kept]
                    needed = _read_by(used)
                case "Generate":
                    used = [node.generator]
                    needed -= {one.number for one in node.by_field["generatorOutput"]}
                    needed |= _read_by(used)
                case "Filter" | "Join":
                    used = [*node.expressions]
                    needed |= _read_by(used)
                case _:
                    used = []
            found += used
        return needed, found

    def reads_of(self, number: int) -> tuple[int, ...]:
        """Return the places of the leaf's columns of which a column's expression reads copies; none if others too."""
        found = [self.copy(one) for expression in self.made.get(number, ()) for one in expression.references()]
        if any(copy is None or copy.fields for copy in found):
            return ()
        return tuple(dict.fromkeys(copy.place for copy in found if copy is not None))

    def depends_on(self, number: int) -> frozenset[int]:
        """Return the places of the leaf's columns that a column is made of."""
        todo, seen = [number], set[int]()
        while todo:
            if (one := todo.pop()) not in seen:
                seen.add(one)
                todo += [read for expression in self.made.get(one, ()) for read in expression.references()]
        return frozenset(place for place, one in enumerate(self.numbers) if one in seen)

    def only_picks(self, not_null: Iterable[str]) -> bool:
        """Return whether the steps drop no rows but those with a null in one of these columns of the leaf."""
        places = {place for place, name in enumerate(self.node.leaf.columns.names) if name in not_null}
        for node, _ in self.steps:
            if node.kind in {"Expand", "Generate", "Join"}:
                return False
            if node.kind == "Filter":
                (condition,) = node.expressions
                one = condition.children[0] if condition.kind == "IsNotNull" else None
                copy = self.copy(one.number) if one is not None and one.is_attribute else None
                if copy is None or copy.fields or copy.place not in places:
                    return False
        return True

    @remembered
    def is_deterministic(self) -> bool:
        """False if something in them gives another answer each time that it is asked."""
        return bool(analyzed(self.frame).deterministic())

    @remembered
    def draws(self) -> str | None:
        """What in them gives another answer each time that it is asked, in words; None: nothing does."""
        if self.is_deterministic:
            return None
        for node, _ in self.steps:
            for one in node.expressions:
                if _draws(one):
                    return words(one.children[0] if one.kind == "Alias" else one)
        return "something in it"

    @remembered
    def differs_each_time(self) -> str | None:
        """Why the same rows give another answer each time that the steps are planned, or None."""
        if self.draws is not None:
            return f"{self.draws} is not deterministic"
        for node, _ in self.steps:
            if node.kind == "Join":
                return "the plan holds a join with a DataFrame"
            for one in node.expressions:
                for part in one.below():
                    if part.plans:
                        return f"{words(one)} holds a subquery"
                    if part.kind in _CURRENT or _reads_now(part):
                        return f"{words(one)} depends on the time"
        return None

    @remembered
    def spread(self) -> Spread:
        """Which of their columns decide in which task a row is: what of their node's are left behind the steps."""
        before = self.node.spread
        held: dict[tuple[int, ...], str] = {}
        for place, copy in self.copies().items():
            whole = (copy.place, *copy.fields)
            kept = {path: part for path, part in before.held.items() if path[: len(whole)] == whole}
            held |= {(place, *path[len(whole) :]): part for path, part in kept.items()}
        return Spread(held, before.sufficient, before.named)

    def words(self, number: int) -> str:
        """Return what a column is made of, back to the topics: the same in every run of the same pipeline."""
        return _Words(self)[number]

    def of_expression(self, expression: Expression) -> str:
        """Return an expression over these rows in words, as :meth:`words`."""
        return words(expression, _Words(self))

    def column(self, number: int) -> RowColumn:
        """Return the column of a number."""
        return next(column for column in self.columns if column.number == number)

    def line_of(self, number: int) -> CallSite | None:
        """Return the line of the first call behind which there is a column; None if it is the leaf's."""
        del number
        return self.written[-1].call_site if self.written else None


@dataclass(slots=True, eq=False, kw_only=True)
class Node:
    """A place in the tree that rows flow out of.

    Attributes:
        call_site: the line that wrote it.
        text: the step as people read it.
        leaf: what stands for its rows.
        spread: which of its columns decide in which task a row is.
        finish: how many of the first projections above the leaf put the step's columns into the plan's order.
        shared: behind a step that emits a stream with several ways out: the topic at which they begin; else None.
    """

    call_site: CallSite
    text: str
    leaf: Leaf = field(init=False)
    spread: Spread = field(init=False)
    finish: int = field(init=False, default=0)
    shared: Node | None = field(init=False, default=None)

    is_table: ClassVar[bool] = False

    @property
    def inputs(self) -> tuple[Rows, ...]:
        """The rows that come to it."""
        return ()

    @property
    def rows(self) -> Rows:
        """The rows that come to it, of the first stream of several."""
        return self.inputs[0]

    def origin(self, place: int) -> tuple[Rows, int] | None:
        """Return where one of its columns comes from as it is: rows that come to it, and their column's number."""
        del place
        return None

    def words_of(self, place: int) -> str:
        """Return what a column of its leaf is made of, in words: by default its name."""
        before = self.origin(place)
        if before is None:
            return str(self.leaf.columns.fields[place].name)
        rows, number = before
        return rows.words(number)


class _Words(dict[int, str]):
    """The words of columns, found when they are asked for."""

    def __init__(self, rows: Rows) -> None:
        super().__init__()
        self._rows = rows
        #: What columns are made of: of a struct's field that is more than the struct's words.
        self.made = rows.made

    def get(self, number: int, default: str | None = None) -> str:  # type: ignore[override]
        """Return the words of a column."""
        del default
        return self[number]

    def __missing__(self, number: int) -> str:
        rows = self._rows
        if number in rows.numbers:
            text = rows.node.words_of(rows.numbers.index(number))
        elif (made := rows.made.get(number)) is None:
            # A static DataFrame's.
            known = (column for node in rows.plan.below() for column in node.output)
            text = next((column.name for column in known if column.number == number), "?")
        elif (window := time_window(made)) is not None:
            text = window_words(window, self)
        else:
            text = words(made[0], self, inside=not made[0].is_attribute)
        self[number] = text
        return text


def _reads_now(one: Expression) -> bool:
    """Return whether an expression may read a text such as ``'today'`` as a time, for which Spark puts a constant."""
    if one.kind not in _READS_TIMES or (one.kind == "Cast" and str(one.fields["dataType"]) not in _TIMES):
        return False
    text, *_ = one.children
    if text.kind == "Literal":
        return text.fields["dataType"] == "string" and _NOW_AS_TEXT.match(str(text.fields.get("value"))) is not None
    # A text that is put together of others is not looked into.
    strings = any(part.kind == "Literal" and part.fields["dataType"] == "string" for part in text.below())
    return strings and text.kind not in {"Cast", *_READS_TIMES} and next(text.references(), None) is None


def _only_first(one: Expression) -> bool:
    """Return whether an expression is what ``fillna`` makes of a column that has no nulls."""
    return one.kind == "Coalesce" and one.children[0].fields.get("nullable") is False


def _is_same(one: Expression) -> bool:
    return one.children[0].is_attribute and one.children[0].number == one.number


def _draws(one: Expression) -> bool:
    return any(part.kind in DRAWING or part.fields.get("udfDeterministic") is False for part in one.below())


def _is_leaf(plan: Plan) -> bool:
    return leaf_number(plan) is not None


def _read_by(expressions: Iterable[Expression]) -> set[int]:
    return {number for expression in expressions for number in expression.references()}
