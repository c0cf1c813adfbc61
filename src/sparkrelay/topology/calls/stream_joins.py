"""Joins of two streams: what ``KStream.join(KStream)`` writes down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sparkrelay.errors import TopologyException
from sparkrelay.operators.stream_join.step import StreamJoin
from sparkrelay.topology.calls.row_steps import make_step
from sparkrelay.topology.columns import quoted
from sparkrelay.topology.join_conditions import has_conditions, join_names, join_terms
from sparkrelay.topology.naming import check_name
from sparkrelay.topology.nodes import EmittingNode, RepartitionNode, StepNode, behind_state, watermark_before

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.lineage import Lineage
    from sparkrelay.topology.nodes import Node, Record

#: PySpark's words for each way of joining.
_HOW: Final = {
    "inner": ("inner",),
    "left": ("left", "leftouter", "left_outer"),
    "right": ("right", "rightouter", "right_outer"),
    "full": ("full", "outer", "fullouter", "full_outer"),
    "left_semi": ("semi", "leftsemi", "left_semi"),
    "left_anti": ("anti", "leftanti", "left_anti"),
}


def join_streams(  # noqa: PLR0917 - as they are written
    record: Record,
    left: tuple[Node, Lineage],
    right: tuple[Node, Lineage],
    on: Any,
    how: Any,
    within: Any,
    name: Any,
    call_site: CallSite,
) -> Node:
    """Write down a join of two streams; a stream whose rows are not spread by the join's columns is repartitioned.

    Args:
        record: of the builder.
        left: where the left stream's rows come from, and what is known of their partitions.
        right: the same of the right one.
        on: names of the columns that are equal in rows that go together, or conditions.
        how: one of PySpark's words.
        within: how far apart their event times may be; or how much earlier and how much later than the left one the
            right one may be.
        name: of the store, or None.
        call_site: the line that wrote it.

    Raises:
        TopologyException: an argument is of the wrong kind, or nothing says when rows are too old to go together.
    """
    way = join_way(how, "two streams", _HOW, call_site)
    # Without a range of time, what is wanted may be a lookup: said before watermarks are asked for.
    if not has_conditions(on):
        join_names(on, call_site)
        _span(within, call_site)
    watermarks = (_watermark(left[0], "left", call_site), _watermark(right[0], "right", call_site))
    terms = join_terms(on, (left[0], right[0]), (watermarks[0][0], watermarks[1][0]), way, call_site)
    columns = terms.keys
    if terms.within is not None and within is not None:
        raise TopologyException(
            f"{call_site}: within={within!r} of join(): its condition has a range of time already, {terms.within!r}; "
            "leave one of them out"
        )
    span = terms.within or _span(within, call_site, terms.unread)
    text = f"join({', '.join(columns)}, {way}, within={(span if span[0] != span[1] else span[0])!r})"
    sides = [
        _spread(
            record,
            *_with_pairs(record, side, terms.pairs, place, call_site),
            columns,
            unmatched=way != "inner",
            call_site=call_site,
        )
        for place, side in enumerate((left, right))
    ]
    if sides[0] is sides[1]:
        sides[1] = record.add(StepNode(sides[1], None, call_site))
    store, by_condition = check_name(name, call_site), terms.within is not None
    left_step, right_step = (
        StreamJoin("", columns, way, span, by_condition, is_left, watermark, True, call_site, text)
        for is_left, watermark in zip((True, False), watermarks, strict=True)
    )
    joined: Node = record.add(EmittingNode(sides[0], left_step, store, columns, sides[1], right_step))
    steps = [make_step("where", (condition,), call_site) for condition in terms.further]
    if terms.pairs:
        steps.append(make_step("drop", tuple(terms.pairs), call_site))
    for step in steps:
        joined = record.add(StepNode(joined, step, call_site))
    return joined


def _with_pairs(
    record: Record, side: tuple[Node, Lineage], pairs: Mapping[str, tuple[str, str]], place: int, call_site: CallSite
) -> tuple[Node, Lineage]:
    """Return a stream with the columns that its own go together by with others of the other stream."""
    if not pairs:
        return side
    node, lineage = side
    made = (f"{quoted((columns[place],))} as {quoted((name,))}" for name, columns in pairs.items())
    step = make_step("selectExpr", ("*", *made), call_site)
    return record.add(StepNode(node, step, call_site)), lineage.after(step)


def join_way(how: Any, of: str, ways: Iterable[str], call_site: CallSite) -> str:
    """Return the way of joining that one of PySpark's words means.

    Raises:
        TopologyException: it is none of the ways that ``of`` are joined in.
    """
    for way in ways:
        if isinstance(how, str) and how.lower() in _HOW[way]:
            return way
    raise TopologyException(f"{call_site}: join() of {of} takes how= of {', '.join(ways)}, not {how!r}")


def _span(within: Any, call_site: CallSite, unread: str = "") -> tuple[str, str]:
    """Return how much earlier and how much later than the left row the right one may be.

    Raises:
        TopologyException: it is said in no such way, or not at all.
    """
    both = (within, within) if isinstance(within, str) else within
    if isinstance(both, tuple) and len(both) == 2 and all(isinstance(part, str) and part.strip() for part in both):
        return both[0], both[1]
    given = "" if within is None else f", not {within!r}"
    raise TopologyException(
        f'{call_site}: join() of two streams takes within=, such as within="10 minutes", how far apart the event times '
        'of two rows may be that go together, or within=("0 seconds", "1 hour"), how much earlier and how much later '
        f"the right one may be{given}; without it every row would be kept for ever. To look up what a topic holds of "
        f"each key just now, join with builder.table(topic) instead{unread}"
    )


def _watermark(node: Node, side: str, call_site: CallSite) -> tuple[str, str]:
    found = watermark_before(node)
    if found is None:
        raise TopologyException(
            f"{call_site}: join() of two streams needs to know when no row will come any more that goes with a stored "
            f'one: put withWatermark("time", "10 minutes") before it, on the {side} stream too, with the column of its '
            "event times and how late rows may come; behind a union, an aggregation or another join it is said anew"
        )
    return found


def _spread(
    record: Record,
    node: Node,
    lineage: Lineage,
    columns: tuple[str, ...],
    *,
    unmatched: bool,
    call_site: CallSite,
) -> Node:
    """Return where a stream's rows come from once they are spread by the join's columns."""
    if len(columns) == 1 and not unmatched:
        # A null is equal to nothing, and need not travel.
        node = record.add(StepNode(node, make_step("where", (f"{quoted(columns)} is not null",), call_site), call_site))
    located = None if behind_state(node) else lineage.locate(columns)
    if located is not None and located.columns == columns:
        return node
    return record.add(RepartitionNode(node, columns, None, columns, None, explicit=False, call_site=call_site))
