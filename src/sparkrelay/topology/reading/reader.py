"""An analysed plan, cut at what is not row-wise: each such node becomes one of the pipeline's steps.

Project          rows over a new leaf
Aggregate   -> a node of the pipeline, given
Filter       rows over a source's leaf
leaf
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.catalyst import rewriting
from sparkrelay.catalyst.frames import analyzed, as_attribute, frame_of, leaf_number, project, with_children
from sparkrelay.catalyst.jvm import catalyst, catalyst_object, items, seq
from sparkrelay.catalyst.subqueries import as_joins, scalars_as_joins, subqueries, with_conditions
from sparkrelay.catalyst.tree import read_plan
from sparkrelay.catalyst.words import words
from sparkrelay.errors import TopologyException
from sparkrelay.topology.building.row_checks import check_of_table
from sparkrelay.topology.nodes import EmittingNode
from sparkrelay.topology.reading import aggregates, deduplication, joins, rankings, sources, unions
from sparkrelay.topology.reading.tables import holds_rows
from sparkrelay.topology.record import over, projected, without_kafka_columns
from sparkrelay.topology.refusals import FIRST_ROWS, SUBQUERY, not_row_wise
from sparkrelay.topology.rows import ROW_WISE, Rows, Written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from sparkrelay.catalyst.tree import Plan
    from sparkrelay.topology.reading.calls import Call
    from sparkrelay.topology.record import Record

#: What ``readStream`` makes.
_RELATION: Final = "StreamingRelationV2"
_PASSED: Final = ROW_WISE | {"CTERelationDef"}


class Reader:
    """Reads one plan.

    Args:
        record: of the builder.
        call: of the user's, that made the plan.
        known: rows that the plan is made of, for the lines that wrote them.
        mode: of a ``readStream``: the output mode of a query. Those of one mode share their stateful steps.
    """

    def __init__(self, record: Record, call: Call, known: Sequence[Rows] = (), *, mode: str | None = None) -> None:
        self._mode = mode
        self.record = record
        self.call = call
        self._known = known
        #: Number of a ``WITH`` clause's definition -> its plan; and its rows, once they are read.
        self._defined: dict[int, Plan] = {}
        self._shared: dict[int, Rows] = {}
        #: Number of a definition -> how often it is read.
        self._uses: Counter[int] = Counter()

    def read(self, frame: DataFrame) -> Rows:
        """Return the rows of a DataFrame over leaves.

        Raises:
            TopologyException: something in it cannot be done with streams and tables.
        """
        known = self._known[0].known_plan if self._known else None
        plan = self._with_joins(read_plan(analyzed(frame), known))
        self._uses = Counter(int(node.fields["cteId"]) for node in plan.below() if node.kind == "CTERelationRef")
        return self._without_kafka(self.rows(plan))

    def _with_joins(self, plan: Plan) -> Plan:
        """Return a plan in which subqueries of streams and tables are joins.

        Raises:
            TopologyException: one of them cannot be.
        """
        self._defined |= {int(one.fields["id"]): one for one in plan.below() if one.kind == "CTERelationDef"}
        if any(subqueries(plan, self.has_leaf)):
            java = scalars_as_joins(as_joins(plan.java), lambda one: self.has_leaf(read_plan(one)))
            plan = read_plan(java)
            for one in subqueries(plan, self.has_leaf):
                raise TopologyException(f"{self.call.where}: {self.call.method}(): {words(one)}: {SUBQUERY}")
        if any(node.kind == "Join" and not node.by_field["condition"] for node in plan.below()):
            # FROM a, b WHERE a.x = b.y
            plan = read_plan(with_conditions(plan.java))
        return plan

    def _inline_frames(self, at: Plan) -> None:
        """Replace the ``WITH`` clauses that a node reads of DataFrames, in a subquery or a join, by their plans."""
        if not self._defined:
            return
        own = [self.has_leaf(child) for child in at.children]
        read = [child for child, leaf in zip(at.children, own, strict=True) if not leaf]
        read += [plan for one in at.expressions for part in one.below() for plan in part.plans]
        if not any(node.kind == "CTERelationRef" for plan in read for node in plan.below()):
            return
        defined = seq(plan.java for plan in self._defined.values() if not self.has_leaf(plan))
        nothing = catalyst_object("plans.logical.OneRowRelation").apply()
        children = [nothing if leaf else child.java for child, leaf in zip(at.children, own, strict=True)]
        inline = catalyst("optimizer.InlineCTE", True, False, False)
        inlined = inline.apply(catalyst("plans.logical.WithCTE", with_children(at.java, children), defined))
        made = zip(at.children, own, items(inlined.children()), strict=True)
        at.children = tuple(child if leaf else read_plan(there) for child, leaf, there in made)
        at.java = with_children(inlined, [child.java for child in at.children])

    def _without_kafka(self, rows: Rows) -> Rows:
        """Return the rows of a table, or of a join of streams, without Kafka's own columns: those are of one record."""
        joined = isinstance(rows.node, EmittingNode) and rows.node.other is not None
        return without_kafka_columns(rows) if rows.node.is_table or joined else rows

    def rows(self, plan: Plan, *, grouped: bool = False) -> Rows:
        """Return the rows that a node of the plan makes.

        Args:
            plan: the node.
            grouped: True for what is grouped: of a table's row there may be several, which are taken back together.

        Raises:
            TopologyException: something in it cannot be done with streams and tables.
        """
        steps: list[tuple[Plan, int]] = []
        at = plan
        while True:
            if (number := leaf_number(at)) is not None:
                node = self.record.node(number)
                frame = frame_of(at.java, self.record.spark)
                written = next((rows.written for rows in self._known if rows.node is node), ())
                if steps and not written and holds_rows(node):
                    # Steps of the query's own, behind which another table may hold the rows.
                    written = (Written(self.call.call_site, self.call.method, frame),)
                below = Rows(node, frame, written, known=at)
                break
            if at.kind == _RELATION:
                below = sources.relation_rows(self.record, self.call, at)
                break
            if at.kind == "WithCTE":
                *definitions, at = at.children
                self._defined |= {int(one.fields["id"]): one for one in definitions}
                continue
            if at.kind == "CTERelationRef":
                if self._uses[int(at.fields["cteId"])] == 1:
                    # As a subquery: what is above it may belong to what is in it.
                    at = self._inlined(at)
                    continue
                below = self._definition(at)
                break
            self._inline_frames(at)
            if (place := self._passing(at)) is not None:
                steps.append((at, place))
                at = at.children[place]
                continue
            below = self._step(at, steps)
            break
        rows = over(below, steps)
        if not grouped:
            check_of_table(rows, self.call.where, self.call.method)
        return rows

    def _passing(self, at: Plan) -> int | None:
        """Return which child the rows of a row-wise node come from; None for another node."""
        if at.kind in _PASSED:
            return 0
        if at.kind == "Join":
            return joins.static_side(self, at)
        return None

    def _step(self, at: Plan, above: list[tuple[Plan, int]]) -> Rows:
        """Return the rows of a node that is one of the pipeline's steps; of one that was read before, the same."""
        if self._mode is None:
            return self._new_step(at, above)
        key = self._mode, at.text
        if key not in self.record.shared:
            rows = self._new_step(at, above)
            if rows.node.is_table and at.kind in {"Join", "Window"}:
                # What is above it belongs to it, too.
                return rows
            self.record.shared[key] = rows
        return self.record.shared[key]

    def _new_step(self, at: Plan, above: list[tuple[Plan, int]]) -> Rows:
        """Return the rows of a node that is one of the pipeline's steps; takes from ``above`` what belongs to it."""
        match at.kind:
            case "Aggregate":
                of_all = not at.by_field["groupingExpressions"]
                if of_all:
                    at = read_plan(rewriting.totals(at.java))
                rows = self.rows(at.children[0], grouped=True)
                return aggregates.aggregated(self.record, self.call, rows, at, of_all=of_all)
            case "Deduplicate" | "DeduplicateWithinWatermark" | "Distinct":
                rows = self.rows(at.children[0])
                if rows.node.is_table and (at.kind == "Distinct" or self.call.method == "distinct"):
                    return self.rows(read_plan(rewriting.distinct_rows(analyzed(rows.frame))))
                return deduplication.deduplicated(self.record, self.call, rows, at)
            case "Intersect" | "Except" if not at.fields["isAll"]:
                both = [self.rows(child) for child in at.children]
                if not all(rows.node.is_table for rows in both):
                    raise TopologyException(f"{self.call.where}: {self.call.method}(): {not_row_wise(at.kind)}")
                plan = with_children(at.java, [analyzed(rows.frame) for rows in both])
                return self.rows(read_plan(rewriting.as_join(plan)))
            case "Sort" | "GlobalLimit" if (ordered := self._ordered(at)) is not None:
                return ordered
            case "Join":
                return joins.joined(self, at, above)
            case "Union":
                return unions.united(self, [self.rows(child) for child in at.children], at)
            case "Window":
                return rankings.ranked(self, at, above)
            case _:
                raise TopologyException(f"{self.call.where}: {self.call.method}(): {not_row_wise(at.kind)}")

    def _ordered(self, at: Plan) -> Rows | None:
        """Return a table's rows in an order, or the first of them; None for a stream's.

        Raises:
            TopologyException: the rows have no order, or the limit is too large.
        """
        steps: list[tuple[Plan, int]] = []
        below = at
        if at.kind == "GlobalLimit":
            below = at.children[0].children[0] if at.children[0].kind == "LocalLimit" else at.children[0]
            while below.kind in {"Project", "SubqueryAlias"}:
                steps.append((below, 0))
                below = below.children[0]
        rows = self.rows(below.children[0] if below.kind == "Sort" else below)
        if not rows.node.is_table:
            return None
        if at.kind == "Sort":
            # A topic has no order of rows of several keys.
            return rows
        limit = at.by_field["limitExpr"][0]
        count = int(limit.fields["value"]) if limit.kind == "Literal" else 0
        if below.kind != "Sort" or not 1 <= count <= rankings.MOST:
            raise TopologyException(f"{self.call.where}: {self.call.method}(): {FIRST_ROWS}")
        ordered = rewriting.first_rows(count, with_children(below.java, [analyzed(rows.frame)]))
        return over(self.rows(read_plan(ordered)), steps)

    def _definition(self, at: Plan) -> Rows:
        """Return the rows of a ``WITH`` clause's definition, with the numbers of one of its uses."""
        number = int(at.fields["cteId"])
        if number not in self._shared:
            self._shared[number] = self.rows(self._defined[number])
        rows = self._shared[number]
        return projected(rows, _renumbered(items(analyzed(rows.frame).output()), at))

    def _inlined(self, at: Plan) -> Plan:
        """Return the plan of a ``WITH`` clause's definition, with the numbers of its only use."""
        definition = self._defined[int(at.fields["cteId"])].java.child()
        columns = _renumbered(items(definition.output()), at)
        return read_plan(project(columns, definition))

    def has_leaf(self, plan: Plan) -> bool:
        """Return whether rows of the pipeline are in a plan."""
        for node in plan.below():
            if leaf_number(node) is not None or node.kind == _RELATION:
                return True
            if node.kind == "CTERelationRef" and self.has_leaf(self._defined[int(node.fields["cteId"])]):
                return True
        return False


def _renumbered(output: list[Any], use: Plan) -> list[Any]:
    """Return the columns of a ``WITH`` clause's definition with the numbers of one of its uses."""
    both = zip(output, items(use.java.output()), strict=True)
    return [one if one.exprId().equals(other.exprId()) else as_attribute(one, other) for one, other in both]
