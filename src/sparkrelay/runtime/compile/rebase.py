"""Analysed row-wise steps over the real rows: hidden columns pass through them, and Catalyst's numbers are kept.

Nothing that the user wrote is analysed again. Between the steps our own rules are put in: a filter lets records through
that delete, or makes deletions of rows that do not pass; the row that ends a micro-batch in a resident job passes
everything and is computed on by nothing.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from sparkrelay import hidden_columns
from sparkrelay.catalyst.frames import alias, analyzed, frame_of, new_number, project, with_children
from sparkrelay.catalyst.jvm import catalyst, catalyst_object, items, kind, seq
from sparkrelay.runtime.compile.parsed_values import key_of, replaced_calls
from sparkrelay.topology.rows import DRAWING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from sparkrelay.catalyst.tree import Expression, Plan
    from sparkrelay.runtime.compile.parsed_values import ParsedValue
    from sparkrelay.topology.rows import Rows

_EXCLUDED_RULES: Final = "spark.sql.adaptive.optimizer.excludedRules"
#: Subqueries of DataFrames, which Spark makes joins of.
_SUBQUERIES: Final = frozenset({"Exists", "ListQuery", "ScalarSubquery"})
_EMPTY_SIDES: Final = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"


@dataclass(frozen=True, slots=True)
class Passing:
    """What passes filters although they would not let it through.

    Attributes:
        tombstones: True in front of a table of newest rows: no filter keeps a deletion from it.
        deletes: in front of a table that holds the rows behind the steps: the places of the columns of its key. What
            does not pass a filter deletes there.
    """

    tombstones: bool = False
    deletes: tuple[int, ...] = ()


class Rebase:
    """Puts the steps of some rows over others.

    Args:
        rows: what was analysed.
        base: the real rows.
        given: name of a column of the leaf -> what it is called in ``base``; None: it is null.
        hidden: names of the hidden columns, which ``base`` has, too.
        conditions: that rows of ``base`` have to pass, as :class:`Picked` has them.
        passing: what passes filters.
        parsed: what the worker has parsed.
    """

    def __init__(
        self,
        rows: Rows,
        base: DataFrame,
        given: Mapping[str, str | None],
        hidden: Sequence[str],
        *,
        conditions: Sequence[Sequence[tuple[str, bool]]] = (),
        passing: Passing = Passing(),
        parsed: Sequence[ParsedValue] = (),
    ) -> None:
        self._rows = rows
        self._spark = base.sparkSession
        self._session = base._jdf.sparkSession()
        self._passing = passing
        self._plan = analyzed(base)
        output = self._plan.output()
        attributes = {name: output.apply(index) for index, name in enumerate(base.columns)}
        self._hidden = {name: attributes[name] for name in hidden}
        for alternatives in conditions:
            self._filter(
                _any_of(attributes[name] if flag else _not_null(attributes[name]) for name, flag in alternatives)
            )
        columns = []
        for place, field in enumerate(rows.node.leaf.columns):
            attribute = rows.leaf.java.output().apply(place)
            of = given.get(field.name)
            source = _nothing(attribute) if of is None else attributes[of]
            columns.append(alias(source, str(attribute.name()), attribute.exprId()))
        #: What is parsed: the columns, and which calls they stand for.
        made = {one.key: one.column(attributes) for one in parsed}
        self._plan = project([*columns, *made.values(), *self._hidden.values()], self._plan)
        self._parsed = {key: column.toAttribute() for key, column in made.items()}

    @property
    def _beside(self) -> list[Any]:
        """What goes through the steps beside the columns that they know."""
        return [*self._parsed.values(), *self._hidden.values()]

    def frame(self, names: Mapping[int, str]) -> DataFrame:
        """Return the rows behind the steps.

        Args:
            names: place of a column -> what it is called; others are left out.
        """
        for node, place in self._rows.steps:
            self._step(node, place)
        output = self._plan.output()
        chosen = []
        for place, name in names.items():
            attribute = output.apply(place)
            same = str(attribute.name()) == name
            chosen.append(attribute if same else alias(attribute, name, new_number()))
        return frame_of(project([*chosen, *self._hidden.values()], self._plan), self._spark, self._session)

    def _step(self, node: Plan, place: int) -> None:
        match node.kind:
            case "Filter":
                self._filtered(node)
            case "Project":
                listed = self._with_parsed(node.java.projectList(), node.by_field["projectList"])
                listed = seq(map(self._with_broadcasts, items(listed), node.by_field["projectList"]))
                if self._marker is not None or self._draws(node):
                    listed = seq(map(self._column, items(listed), node.by_field["projectList"]))
                self._plan = catalyst("plans.logical.Project", self._with_hidden(listed), self._plan)
            case "Expand":
                ways = seq(self._with_hidden(way) for way in items(node.java.projections()))
                output = self._with_hidden(node.java.output())
                self._plan = catalyst("plans.logical.Expand", ways, output, self._plan)
            case "Join":
                self._joined(node, place)
            case "Generate":
                self._generated(node)
            case _:
                pass  # An alias, or a note of the watermark's: nothing that changes rows.

    def _generated(self, node: Plan) -> None:
        """Generate rows. Spark puts the new columns last, after the hidden ones; move those to the end again."""
        self._plan = with_children(node.java, [self._plan])
        output = items(self._plan.output())
        end = len(node.children[0].output)
        generated = output[end + len(self._beside) :]
        self._plan = project([*output[:end], *generated, *self._beside], self._plan)

    @property
    def _marker(self) -> Any | None:
        return self._hidden.get(hidden_columns.MARKER)

    def _with_hidden(self, columns: Any) -> Any:
        return columns.appendedAll(seq(self._beside)) if self._beside else columns

    def _with_parsed(self, expressions: Any, read: Sequence[Expression]) -> Any:
        """Return expressions in which columns stand for what the worker has parsed."""
        if not self._parsed:
            return expressions

        def known(call: Expression) -> Any | None:
            return self._parsed.get(key_of(self._rows, call) or "")

        return seq(replaced_calls(java, one, known) for java, one in zip(items(expressions), read, strict=True))

    def _with_broadcasts(self, expression: Any, read: Expression) -> Any:
        """Return an expression whose subqueries are sent to where the stream's rows are, as what is joined is."""
        if not any(part.kind in _SUBQUERIES for part in read.below()):
            return expression
        have_streams_run(self._spark)
        return _broadcast(expression, analyzed(F.broadcast(self._spark.range(0))).hints())

    def _draws(self, node: Plan) -> bool:
        return any(part.kind in DRAWING for one in node.expressions for part in one.below())

    def _column(self, java: Any, column: Expression) -> Any:
        """Return a projection's column: drawn anew, and not computed for markers."""
        if column.kind != "Alias" or column.children[0].is_attribute:
            return java
        computed = _reseeded(java.child(), column.children[0])
        if self._marker is not None:
            computed = catalyst("expressions.If", _not_null(self._marker), _nothing(computed), computed)
        return with_children(java, [computed])

    def _filtered(self, node: Plan) -> None:
        (expression,) = node.expressions
        condition = self._with_parsed(seq([node.java.condition()]), [expression]).head()
        condition = self._with_broadcasts(condition, expression)
        condition = _reseeded(condition, expression)
        if self._passing.deletes:
            self._delete_unless(condition, node)
            return
        if self._passing.tombstones:
            condition = catalyst("expressions.Or", self._hidden[hidden_columns.TOMBSTONE], condition)
        self._filter(condition)

    def _filter(self, condition: Any) -> None:
        if self._marker is not None:
            condition = catalyst("expressions.Or", _not_null(self._marker), condition)
        self._plan = catalyst("plans.logical.Filter", condition, self._plan)

    def _delete_unless(self, condition: Any, node: Plan) -> None:
        """Have rows that do not pass delete what their key has in the table: of them only the key is left."""
        tombstone = self._hidden[hidden_columns.TOMBSTONE]
        false = catalyst_object("expressions.Literal").FalseLiteral()
        holds = catalyst("expressions.Coalesce", seq([condition, false]))
        passes = catalyst("expressions.And", catalyst("expressions.Not", tombstone), holds)
        marked = alias(catalyst("expressions.Not", passes), hidden_columns.TOMBSTONE, new_number())
        output = node.java.output()
        visible = [output.apply(place) for place in range(int(output.size()))]
        others = [one for name, one in self._hidden.items() if name != hidden_columns.TOMBSTONE]
        self._plan = project([*visible, *others, marked], self._plan)
        self._hidden[hidden_columns.TOMBSTONE] = tombstone = marked.toAttribute()
        made, again = [], []
        for column, attribute in zip(node.output, visible, strict=True):
            copy = self._rows.copy(column.number)
            if copy is not None and not copy.fields and copy.place in self._passing.deletes:
                made.append(attribute)
                again.append(attribute)
                continue
            left = catalyst("expressions.If", tombstone, _nothing(attribute), attribute)
            # A number of its own in between: else what was known of the column would be taken for true behind it.
            fresh = alias(left, column.name, new_number())
            made.append(fresh)
            again.append(alias(fresh.toAttribute(), column.name, attribute.exprId()))
        self._plan = project([*made, *self._hidden.values()], self._plan)
        self._plan = project([*again, *self._hidden.values()], self._plan)

    def _joined(self, node: Plan, place: int) -> None:
        """Join with a DataFrame, whose rows are sent to where the stream's are: a task's rows stay where they are."""
        have_streams_run(self._spark)
        static = frame_of(node.children[1 - place].java, self._spark)
        found = None
        if self._passing.tombstones and node.join_type == "Inner":
            found = alias(catalyst_object("expressions.Literal").TrueLiteral(), "found", new_number())
            plan = analyzed(static)
            static = frame_of(project([*items(plan.output()), found], plan), self._spark)
        sent = analyzed(F.broadcast(static))
        children = [self._plan, sent] if place == 0 else [sent, self._plan]
        outer = "LeftOuter" if place == 0 else "RightOuter"
        how = node.java.joinType() if found is None else catalyst_object(f"plans.{outer}")
        join = catalyst("plans.logical.Join", *children, how, node.java.condition(), node.java.hint())
        self._plan = join
        if found is not None:
            there = _not_null(found.toAttribute())
            self._filter(catalyst("expressions.Or", self._hidden[hidden_columns.TOMBSTONE], there))
        # In the order in which it was analysed, the hidden columns last.
        output = node.java.output()
        visible = [output.apply(index) for index in range(int(output.size()))]
        self._plan = project([*visible, *self._beside], self._plan)


def _broadcast(expression: Any, hints: Any) -> Any:
    children = items(expression.children())
    made = with_children(expression, [_broadcast(child, hints) for child in children]) if children else expression
    if kind(made) in _SUBQUERIES:
        made = made.withNewPlan(catalyst("plans.logical.ResolvedHint", made.plan(), hints))
    return made


def have_streams_run(spark: Any) -> None:
    """Keep Spark from leaving out the stream's side of a join once it sees, as it runs, that the other one is empty.

    Whatever a leg lets through, its last step has to report.
    """
    rules = [rule.strip() for rule in (spark.conf.get(_EXCLUDED_RULES, "") or "").split(",") if rule.strip()]
    if _EMPTY_SIDES not in rules:
        spark.conf.set(_EXCLUDED_RULES, ",".join([*rules, _EMPTY_SIDES]))


def _reseeded(java: Any, expression: Expression) -> Any:
    """Return an expression whose functions that draw have new seeds."""
    if not any(part.kind in DRAWING for part in expression.below()):
        return java
    children = zip(items(java.children()), expression.children, strict=True)
    if expression.children:
        java = with_children(java, [_reseeded(child, of) for child, of in children])
    return java.withNewSeed(secrets.randbits(63)) if expression.kind in DRAWING else java


def _not_null(expression: Any) -> Any:
    return catalyst("expressions.IsNotNull", expression)


def _nothing(expression: Any) -> Any:
    """Return a null of an expression's type; some value where it is never null, as nothing may read it then."""
    literal = catalyst_object("expressions.Literal")
    kind = expression.dataType()
    return literal.create(None, kind) if expression.nullable() else literal.default(kind)


def _any_of(conditions: Any) -> Any:
    found = list(conditions)
    if not found:
        return catalyst_object("expressions.Literal").FalseLiteral()
    first, *others = found
    for other in others:
        first = catalyst("expressions.Or", first, other)
    return first
