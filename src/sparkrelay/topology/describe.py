"""A topology as text, laid out like Kafka Streams' ``TopologyDescription``, with steps and formats as extra lines.

Steps that several legs share stand once. There are no line numbers, so that a description can be kept in a test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.topology.parts import Lookup, Segment
from sparkrelay.topology.structure import TableJoin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparkrelay.records.formats import Format
    from sparkrelay.topology.parts import Part
    from sparkrelay.topology.structure import Leg, Source, Subtopology

_NO_STORES: Final = " (stores: [])"


@dataclass(slots=True, eq=False)
class _Part:
    """One paragraph: what it is called, what it says, where it leads."""

    name: str
    head: str
    notes: list[str]
    before: _Part | None = None
    after: list[_Part] = field(default_factory=list)
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


def describe(subtopologies: tuple[Subtopology, ...], global_tables: tuple[Leg, ...] = ()) -> str:
    """Return the text."""
    lines = ["Topologies:"]
    for number, head, legs in _boxes(subtopologies, global_tables):
        lines.append(f"   Sub-topology: {number}{head}")
        for part in _parts(legs):
            lines.append(f"    {part.head}")
            lines += [f"      {note}" for note in part.notes]
            if not part.head.startswith("Sink"):
                lines.append(f"      --> {', '.join(after.name for after in part.after) or 'none'}")
            if part.before is not None:
                lines.append(f"      <-- {part.before.name}")
        lines.append("")
    return "\n".join(lines)


def dot(subtopologies: tuple[Subtopology, ...], global_tables: tuple[Leg, ...] = ()) -> str:
    """Return the topology as a graph in Graphviz's language, a box around each subtopology."""
    lines = ["digraph topology {", "  rankdir=TB;", '  node [shape=box, style=rounded, fontname="sans-serif"];']
    topics: dict[str, str] = {}
    edges: list[str] = []
    for number, head, legs in _boxes(subtopologies, global_tables):
        lines += [f"  subgraph cluster_{number} {{", f'    label="Sub-topology {number}{head}";']
        names: dict[int, str] = {}
        for part in _parts(legs):
            name = names[id(part)] = f"n{number}_{len(names)}"
            lines.append(f"    {name} [label={_quoted([_drawn(part), *part.notes])}];")
            if part.before is not None:
                edges.append(f"  {names[id(part.before)]} -> {name};")
            edges += [f"  {topics.setdefault(topic, f't{len(topics)}')} -> {name};" for topic in part.reads]
            edges += [f"  {name} -> {topics.setdefault(topic, f't{len(topics)}')};" for topic in part.writes]
        lines.append("  }")
    lines += [f"  {name} [shape=cds, style=filled, label={_quoted([topic])}];" for topic, name in topics.items()]
    return "\n".join([*lines, *edges, "}", ""])


def graph(subtopologies: tuple[Subtopology, ...], global_tables: tuple[Leg, ...] = ()) -> dict[str, Any]:
    """Return the topology as JSON has it: ``nodes`` and ``edges``, as the live page draws them."""
    nodes: list[dict[str, Any]] = []
    edges: list[list[str]] = []
    topics: dict[str, str] = {}
    for number, head, legs in _boxes(subtopologies, global_tables):
        names: dict[int, str] = {}
        for part in _parts(legs):
            name = names[id(part)] = f"n{number}_{len(names)}"
            kind, _, label = _drawn(part).partition(": ")
            box = f"Sub-topology {number}{head}"
            nodes.append({"id": name, "kind": kind.lower(), "label": label, "notes": list(part.notes), "box": box})
            if part.before is not None:
                edges.append([names[id(part.before)], name])
            edges += [[topics.setdefault(topic, f"t{len(topics)}"), name] for topic in part.reads]
            edges += [[name, topics.setdefault(topic, f"t{len(topics)}")] for topic in part.writes]
    nodes += [{"id": name, "kind": "topic", "label": topic, "notes": [], "box": ""} for topic, name in topics.items()]
    return {"nodes": nodes, "edges": edges}


def _drawn(part: _Part) -> str:
    """Return a paragraph's head for a picture. The text keeps an empty list of stores, as Kafka Streams does."""
    return part.head.removesuffix(_NO_STORES)


def _boxes(
    subtopologies: tuple[Subtopology, ...], global_tables: tuple[Leg, ...]
) -> Iterator[tuple[int, str, tuple[Leg, ...]]]:
    """Yield the number, what is said behind it, and the legs of each subtopology and then of each global table."""
    for subtopology in subtopologies:
        yield subtopology.id, "", subtopology.legs
    for leg in global_tables:
        yield leg.subtopology, " for global store (will not generate tasks)", (leg,)


def _quoted(lines: list[str]) -> str:
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(escaped) + '"'


def format_text(form: Format | None) -> str | None:
    """Return a format as it is written, ``String("carrier")``."""
    return None if form is None else form.fingerprint


def _short_text(form: Format | None) -> str | None:
    return None if form is None else form.in_few_words()


def _parts(legs: Iterable[Leg]) -> Iterator[_Part]:
    """Return the paragraphs of a subtopology: each source, and behind it depth first what follows."""
    roots: dict[int, _Part] = {}
    shared: dict[tuple[int, str], _Part] = {}
    stores: dict[str, _Part] = {}
    joins: dict[int, _Part] = {}
    for leg in legs:
        at = roots.setdefault(id(leg.source), _source_part(leg.source))
        for step in leg.before:
            at = _follow(at, step, leg.source.name, shared)
        if leg.aggregation is not None:
            store = leg.aggregation.store
            part = _Part(store, f"Processor: {store} (stores: [{store}])", [leg.aggregation.text])
            if leg.reused_topic is not None:
                part.notes.append(f"changelog: the topic {leg.reused_topic} itself")
            elif leg.aggregation.keeps_changelog:
                part.notes.append(f"changelog: its own, because {leg.aggregation.keeps_changelog}")
            at = stores[store] = _append(at, part)
        elif leg.join is not None:
            name, store = f"{leg.join.store}-{leg.join.side}", leg.join.store
            at = _append(at, _Part(name, f"Processor: {name} (stores: [{store}])", [leg.join.text]))
        elif leg.emitting is not None:
            store = leg.emitting.store
            at = _append(at, _Part(store, f"Processor: {store} (stores: [{store}])", [leg.emitting.text]))
        elif leg.table_join is not None:
            at = _join_part(leg.table_join, stores, joins)
        elif leg.changes_of is not None:
            at = stores[leg.changes_of]
        if leg.late_for is not None:
            store = leg.late_for.store
            at = _append(at, _Part(f"{store}-late", f"Processor: {store}-late (stores: [{store}])", ["late rows"]))
        for step in (*leg.of_table, *leg.after):
            at = _follow(at, step, leg.source.name, shared)
        if leg.sink is not None:
            formats = ", ".join(
                f"{place}: {_written(form)}"
                for place, form in (("key", leg.sink.key), ("value", leg.sink.value))
                if form is not None
            )
            head = f"Sink: {leg.sink.name} (topic: {leg.sink.topic})"
            lines = [formats] if formats else []
            if leg.sink.circular:
                lines.append("circular: rows may come back from this topic")
            if leg.sink.to_all:
                lines.append("each row goes to every partition")
            _append(at, _Part(leg.sink.name, head, lines, writes=(leg.sink.topic,)))
        if leg.action is not None:
            name = leg.action.text.partition("(")[0]
            _append(at, _Part(name, f"Processor: {at.name}-{name}{_NO_STORES}", [leg.action.text]))
    for root in roots.values():
        yield from _depth_first(root)


def _join_part(join: TableJoin, stores: dict[str, _Part], joins: dict[int, _Part]) -> _Part:
    """Return the paragraph of a join of tables: behind the left one, for a paragraph has one before it."""
    if id(join) not in joins:
        at = _join_part(join.left, stores, joins) if isinstance(join.left, TableJoin) else stores[join.left]
        name = f"{at.name}-join-{1 + len(joins)}"
        head = f"Processor: {name} (stores: [{', '.join(join.stores)}])"
        joins[id(join)] = _append(at, _Part(name, head, [join.text]))
    return joins[id(join)]


def _written(form: Format | str | tuple[str, ...]) -> str | None:
    """Return what a sink's key or value is written of, in words."""
    if isinstance(form, str):
        return form
    return ", ".join(form) if isinstance(form, tuple) else _short_text(form)


def _follow(at: _Part, part: Part, source: str, shared: dict[tuple[int, str], _Part]) -> _Part:
    """Return the last paragraph of ``part`` behind ``at``: those that are there already, or new ones."""
    for text in part.steps if isinstance(part, Segment) else (part.text,):
        key = (id(at), text)
        if key not in shared:
            kind = text.partition(" ")[0].partition("(")[0] if isinstance(part, Segment) else part.kind
            stem = f"{source}-{kind}-"
            name = f"{stem}{1 + sum(one.name.startswith(stem) for one in shared.values())}"
            stores = part.store if isinstance(part, Lookup) else ""
            shared[key] = _append(at, _Part(name, f"Processor: {name} (stores: [{stores}])", [text]))
        at = shared[key]
    return at


def _append(at: _Part, part: _Part) -> _Part:
    part.before = at
    at.after.append(part)
    return part


def _source_part(source: Source) -> _Part:
    formats = ", ".join(
        f"{place}: {text}"
        for place, text in (
            ("key", _short_text(source.key)),
            ("value", _short_text(source.value)),
            ("timestamp", source.timestamp),
            *((f"{topic} from" if len(source.topics) > 1 else "from", str(at)) for topic, at in source.starts.items()),
        )
        if text is not None
    )
    head = f"Source: {source.name} (topics: [{', '.join(source.topics)}])"
    return _Part(source.name, head, [formats] if formats else [], reads=source.topics)


def _depth_first(part: _Part) -> Iterator[_Part]:
    yield part
    for after in part.after:
        yield from _depth_first(after)
