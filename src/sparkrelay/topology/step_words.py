"""Row-wise steps in words, made of the plan and not of what was called: so DataFrames and SQL are described alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.catalyst.windows import time_window
from sparkrelay.catalyst.words import quoted, window_words, words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sparkrelay.catalyst.tree import Column, Expression, Plan
    from sparkrelay.topology.rows import Rows


def step_words(rows: Rows) -> tuple[str, ...]:
    """Return the steps of rows, the first one first; what changes no row has no words."""
    said = rows.steps[: len(rows.steps) - rows.unsaid]
    finish = rows.node.finish
    return tuple(
        text
        for index, (node, place) in enumerate(said)
        if index >= finish or node.kind not in {"Generate", "Project"}
        for text in _said(node, place)
    )


def _said(node: Plan, place: int) -> Iterator[str]:
    # As the column is called, not as somebody has written it.
    names = {column.number: quoted(column.name) for child in node.children for column in child.output}
    match node.kind:
        case "Filter":
            yield f"where {words(node.expressions[0], names)}"
        case "Project":
            yield from _projected(node, names)
        case "Generate":
            made = ", ".join(quoted(one.name) for one in node.by_field["generatorOutput"])
            outer = " outer" if node.fields.get("outer") else ""
            yield f"{words(node.generator, names)}{outer} AS {made}"
        case "Expand":
            yield from _expanded(node, names)
        case "EventTimeWatermark":
            yield f"withWatermark {words(node.by_field['eventTime'][0], names)}, {node.java.delay()}"
        case "Join":
            condition = node.by_field.get("condition", ())
            on = f" on {words(condition[0], names)}" if condition else ""
            yield f"{node.join_type} join with a DataFrame{on}" + (", on its right" if place else "")


def _projected(node: Plan, names: Mapping[int, str]) -> Iterator[str]:
    """Say a projection by what it changes, if the rest stays where it was; else all that it selects."""
    below = node.children[0].output
    chosen = node.by_field["projectList"]
    passed = {one.number for one in chosen if one.is_attribute}
    renamed = {
        of.number: one.name
        for one in chosen
        if one.kind == "Alias" and (of := one.children[0]).is_attribute and of.number not in passed
    }
    made = [one for one in chosen if one.kind == "Alias" and not _renames(one, renamed)]
    left = [column for column in below if column.number in passed or column.number in renamed]
    dropped = [column.name for column in below if column not in left]
    called = [one.name for one in chosen]
    stays = [renamed.get(column.number, column.name) for column in left]
    changed = {old: new for old, new in renamed.items() if new != next(c.name for c in below if c.number == old)}
    if not made and called == stays and not (changed and dropped):
        if changed:
            old = {column.number: column.name for column in below}
            yield f"rename {', '.join(f'{quoted(old[number])} to {quoted(new)}' for number, new in changed.items())}"
        elif dropped and len(dropped) <= len(called):
            yield f"drop {', '.join(map(quoted, dropped))}"
        elif dropped:
            yield f"select {', '.join(map(quoted, called))}"
    elif made and not changed and called == _with(below, left, made):
        yield f"with {', '.join(f'{quoted(one.name)} = {words(one.children[0], names)}' for one in made)}"
    else:
        yield f"select {', '.join(_chosen(one, names) for one in chosen)}"


def _renames(one: Expression, renamed: Mapping[int, str]) -> bool:
    (of,) = one.children
    return of.is_attribute and renamed.get(of.number) == one.name


def _with(below: Sequence[Column], left: Sequence[Column], made: Sequence[Expression]) -> list[str] | None:
    """Return the names behind ``withColumns``: new columns take the places of those that they replace, or come last."""
    new = [one.name for one in made]
    if not {column.name for column in below if column not in left} <= set(new):
        return None
    names = [column.name for column in below]
    more = [name for name in new if name not in names]
    # Spark puts windows first.
    windows = [one.name for one in made if time_window(one.children) is not None]
    return [*more, *names] if more == windows else [*names, *more]


def _chosen(one: Expression, names: Mapping[int, str]) -> str:
    """Return a column that is selected: one that is as it was without ``AS``."""
    of = one.children[0] if one.kind == "Alias" else one
    return quoted(one.name) if of.is_attribute and of.name == one.name else words(one, names)


def _expanded(node: Plan, names: Mapping[int, str]) -> Iterator[str]:
    for column, *ways in zip(node.output, *node.ways, strict=True):
        if ways[0].is_attribute and ways[0].number == column.number:
            continue
        window = time_window(ways)
        said = (
            " or ".join(dict.fromkeys(words(way, names) for way in ways))
            if window is None
            else window_words(window, names)
        )
        yield f"with {quoted(column.name)} = {said}"
