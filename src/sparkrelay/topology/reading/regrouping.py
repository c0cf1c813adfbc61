"""How the rows of a group come into one task: they are there already, or go through a repartition topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sparkrelay.catalyst.frames import alias, analyzed, frame_of, new_number, project, with_children
from sparkrelay.catalyst.jvm import catalyst, items, seq
from sparkrelay.catalyst.words import words
from sparkrelay.errors import TopologyException
from sparkrelay.topology.naming import check_name
from sparkrelay.topology.reading.event_times import event_time
from sparkrelay.topology.reading.repartition import sent_by
from sparkrelay.topology.record import begin, filtered, with_rows
from sparkrelay.topology.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.catalyst.tree import Expression, Plan
    from sparkrelay.topology.reading.calls import Call
    from sparkrelay.topology.record import Record
    from sparkrelay.topology.rows import Node

WINDOW, SESSION = "spark.timeWindow", "spark.sessionWindow"


class Regrouped(NamedTuple):
    """Rows of which those of one group are in one task.

    Attributes:
        rows: the rows, with their windows.
        keys: what they are grouped by, in the JVM.
        before: the rows without their windows.
        decides: which keys make the message key, in its order; None: others do.
    """

    rows: Rows
    keys: list[Any]
    before: Rows
    decides: tuple[int, ...] | None


def regrouped(  # noqa: PLR0917 - what is known of one step
    record: Record, call: Call, rows: Rows, given: Sequence[Expression], keys: list[Any], names: Sequence[str]
) -> Regrouped:
    """Return rows of which those of one group are in one task.

    Any part of the grouping key will do for the topic's key, because equal groups have equal parts. So plain columns
    are taken if there are some (a window would only spread one user's rows over the tasks), and expressions are
    computed here only if there is nothing else. But not sessions: which one a row is in only the rows beside it say.

    Args:
        record: of the builder.
        call: of the user's.
        rows: what is grouped.
        given: the grouping expressions.
        keys: the same in the JVM.
        names: what they are called.
    """
    windows = _window_steps(rows, given)
    before = rows
    if windows:
        below = windows[0].children[0]
        before = Rows(rows.node, frame_of(below.java, record.spark), rows.written, known=below)
    # Behind a stateful step nothing is located: a leg has one of them, the next one needs a topic between.
    located = None
    if not rows.node.is_table:
        paths = [path(rows, one) for one in given]
        located = rows.spread.locate_paths({one for one in paths if one is not None})
    if located is not None:
        plan = analyzed(rows.frame)
        for one in located.not_null:
            condition = catalyst("expressions.IsNotNull", keys[paths.index(one)])
            plan = catalyst("plans.logical.Filter", condition, plan)
        if located.not_null:
            rows = with_rows(rows, frame_of(plan, record.spark))
        decides = None
        if located.columns is not None:
            decides = tuple(paths.index((place,)) for place in located.columns)
        return Regrouped(rows, keys, before, decides)
    known = {} if call.regrouped is None else call.regrouped
    shared = tuple(map(words, given)), tuple(names)
    taken = analyzed(before.frame)
    found = next((one for plan, one in known.get(shared, ()) if plan.equals(taken)), None)
    if found is not None:
        node, by, computed = found
        keys = [computed.get(index, key) for index, key in enumerate(keys)]
    else:
        node, keys_now, by, windows = _written(record, call, rows, before, windows, given, keys, names)
        computed = {index: now for index, (now, key) in enumerate(zip(keys_now, keys, strict=True)) if now is not key}
        keys = keys_now
        if windows or not any(_is_window(rows, one) for one in given):
            known.setdefault(shared, []).append((taken, (node, by, computed)))
    behind = begin(node)
    if windows:
        plan = analyzed(behind.frame)
        # Keys that are computed in front of the topic go through to behind the windows.
        computed = seq(
            one for one in items(plan.output()) if int(one.exprId().id()) in {*by} - set(_plain(rows, given))
        )
        for step in windows:
            plan = _with_columns(step, plan, computed)
        behind = with_rows(behind, frame_of(plan, record.spark))
    grouped = {_number(key): index for index, key in enumerate(keys)}
    decides = tuple(grouped[number] for number in by) if all(number in grouped for number in by) else None
    return Regrouped(behind, keys, begin(node), decides)


def _written(  # noqa: PLR0917 - what is known of a grouping
    record: Record,
    call: Call,
    rows: Rows,
    before: Rows,
    windows: list[Plan],
    given: Sequence[Expression],
    keys: list[Any],
    names: Sequence[str],
) -> tuple[Node, list[Any], list[int], list[Plan]]:
    """Write a repartition topic down.

    Returns:
        It; the keys, of which some are computed in front of it; the numbers of the columns that make its key; and the
        steps that make windows behind it.
    """
    by = _plain(before, given)
    partitions = None
    if not by:
        if event_time(before) is not None and all(_is_window(rows, one) for one in given):
            # A task whose clock sees only windows of its own would never know that they are over.
            partitions = 1
        if all(_is_session(rows, one) for one in given):
            by = [_time_number(before, call)]
        elif any(not one.is_attribute for one in given):
            before, keys, by = _computed(before, given, keys, names)
        else:
            before, windows = rows, []
            by = [number for number in _plain(rows, given) if not _is_session_column(rows, number)]
    if len(by) == 1:
        before = filtered(before, by[0])
    places = [next(place for place, column in enumerate(before.columns) if column.number == one) for one in by]
    topic = check_name(call.topic, call.call_site)
    changes, where = rows.node.is_table, call.call_site
    sent = sent_by(record, before, places, where, name=topic, words=names, partitions=partitions, changes=changes)
    return sent.node, keys, by, windows


def path(rows: Rows, expression: Expression) -> tuple[int, ...] | None:
    """Return the place of the column that an expression is, and of the fields down to what it is of it; or None."""
    fields: tuple[int, ...] = ()
    while expression.kind == "GetStructField":
        fields = (int(expression.fields["ordinal"]), *fields)
        expression = expression.children[0]
    if not expression.is_attribute:
        return None
    place = next((place for place, column in enumerate(rows.columns) if column.number == expression.number), None)
    return None if place is None else (place, *fields)


def _with_columns(step: Plan, child: Any, more: Any) -> Any:
    """Return a step that makes windows over other rows, with further columns of those."""
    match step.kind:
        case "Project":
            return catalyst("plans.logical.Project", step.java.projectList().appendedAll(more), child)
        case "Expand":
            ways = seq(way.appendedAll(more) for way in items(step.java.projections()))
            return catalyst("plans.logical.Expand", ways, step.java.output().appendedAll(more), child)
        case _:
            return with_children(step.java, [child])


def _window_steps(rows: Rows, given: Sequence[Expression]) -> list[Plan]:
    """Return the last steps of rows that make the windows they are grouped by, and filters that belong to those."""
    numbers = {one.number for one in given if one.is_attribute and _is_window(rows, one)}
    if not numbers or any(_reads(one, numbers) for one in given if not one.is_attribute):
        return []
    found: list[Plan] = []
    filters: list[Plan] = []
    for node, _ in reversed(rows.steps):
        if node.kind in {"Project", "Expand"} and _makes(rows, node, numbers):
            found += [*filters, node]
            filters = []
        elif node.kind == "Filter" and _is_of_window(node, numbers):
            filters.append(node)
        else:
            break
    if found and filters and found[-1].kind != "Filter":
        # Where Spark has left rows out that have no time.
        found.append(filters[0])
    return list(reversed(found))


def _makes(rows: Rows, node: Plan, numbers: set[int]) -> bool:
    """Return whether a node makes windows and nothing else."""
    below = {column.number for column in node.children[0].output}
    new = {column.number for column in node.output} - below
    return bool(new) and new <= numbers and all(number in rows.made for number in new)


def _is_of_window(node: Plan, numbers: set[int]) -> bool:
    """Return whether a filter may be what Spark puts beside a window: of its bounds, or of times that are not null."""
    (condition,) = node.expressions
    return _reads(condition, numbers) or condition.kind == "IsNotNull"


def _reads(expression: Expression, numbers: set[int]) -> bool:
    return not numbers.isdisjoint(expression.references())


def _plain(rows: Rows, given: Sequence[Expression]) -> list[int]:
    """Return the numbers of the columns of rows that they are grouped by as they are, each once."""
    numbers = {column.number for column in rows.columns}
    return [*dict.fromkeys(one.number for one in given if one.is_attribute and one.number in numbers)]


def _is_session_column(rows: Rows, number: int) -> bool:
    return SESSION in (rows.column(number).field.metadata or {})


def _is_window(rows: Rows, expression: Expression) -> bool:
    if not expression.is_attribute:
        return False
    metadata = rows.column(expression.number).field.metadata or {}
    return WINDOW in metadata or SESSION in metadata


def _is_session(rows: Rows, expression: Expression) -> bool:
    return expression.is_attribute and _is_session_column(rows, expression.number)


def _time_number(rows: Rows, call: Call) -> int:
    """Return the column of event times: something to send all rows to the one task of sessions of everything by."""
    time = event_time(rows)
    if time is None:
        raise TopologyException(
            f'{call.where}: groupBy() by sessions alone needs withWatermark("time", "10 minutes") before it, with a '
            "column of the stream"
        )
    return time.number


def _computed(
    rows: Rows, given: Sequence[Expression], keys: list[Any], names: Sequence[str]
) -> tuple[Rows, list[Any], list[int]]:
    """Return rows with grouping expressions as columns, the keys there, and the numbers of those columns."""
    known = {column.number for column in rows.columns}
    chosen = [index for index, one in enumerate(given) if not one.is_attribute and set(one.references()) <= known]
    plan = analyzed(rows.frame)
    made = {index: alias(keys[index], names[index], new_number()) for index in chosen}
    frame = frame_of(project([*_all(plan), *made.values()], plan), rows.frame.sparkSession)
    now = [made[index].toAttribute() if index in made else key for index, key in enumerate(keys)]
    numbers = [number for index in made if (number := _number(now[index])) is not None]
    return with_rows(rows, frame), now, numbers


def _all(plan: Any) -> list[Any]:
    output = plan.output()
    return [output.apply(index) for index in range(output.size())]


def _number(java: Any) -> int | None:
    return int(java.exprId().id()) if str(java.productPrefix()) in {"AttributeReference", "Alias"} else None
