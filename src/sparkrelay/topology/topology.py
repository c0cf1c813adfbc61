"""Topology: a finished plan, as the runtime takes it and as people read it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from sparkrelay.topology.describe import describe, dot, format_text, graph
from sparkrelay.topology.public_calls import public_calls

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.topology.structure import Leg, Sink, Subtopology, TableJoin


@public_calls
class Topology:
    """What to run. Made by ``StreamsBuilder.build()``; immutable."""

    __slots__ = ("_global_tables", "_subtopologies")

    def __init__(self, subtopologies: Iterable[Subtopology], global_tables: Iterable[Leg] = ()) -> None:
        self._subtopologies = tuple(subtopologies)
        self._global_tables = tuple(global_tables)

    @property
    def subtopologies(self) -> tuple[Subtopology, ...]:
        """Subtopologies by number."""
        return self._subtopologies

    @property
    def legs(self) -> tuple[Leg, ...]:
        """All legs that tasks run, by subtopology."""
        return tuple(leg for subtopology in self._subtopologies for leg in subtopology.legs)

    @property
    def global_tables(self) -> tuple[Leg, ...]:
        """The legs that every process runs for itself, each to keep a global table; of no subtopology."""
        return self._global_tables

    @property
    def upstream_first(self) -> tuple[Leg, ...]:
        """The same legs; those that write a repartition topic or keep a table come before those that read it.

        The legs of one join stay in their order, behind what any of them reads.
        """
        ordered: list[Leg] = []
        left = list(self.legs)
        while left:
            written = {leg.sink.topic for leg in left if leg.sink is not None and leg.sink.internal}
            kept = {leg.aggregation.store for leg in left if leg.aggregation is not None}
            ready = next(
                leg
                for leg in left
                if not any(
                    (other.source.internal and not written.isdisjoint(other.source.topics))
                    or not kept.isdisjoint(other.reads_stores)
                    for other in left
                    if other is leg or (other.join is not None and other.store == leg.store)
                )
            )
            ordered.append(ready)
            left.remove(ready)
        return tuple(ordered)

    @property
    def source_topics(self) -> frozenset[str]:
        """The user's topics that tasks read."""
        return frozenset[str]().union(*(subtopology.source_topics for subtopology in self._subtopologies))

    @property
    def sink_topics(self) -> frozenset[str]:
        """The user's topics that are written."""
        return frozenset[str]().union(*(subtopology.sink_topics for subtopology in self._subtopologies))

    @property
    def reused_topics(self) -> Mapping[str, str]:
        """Store -> the user's topic that is its changelog."""
        return {store: topic for part in self._subtopologies for store, topic in part.reused_topics.items()}

    @property
    def internal_topics(self) -> frozenset[str]:
        """Repartition and changelog topics, without the application id that comes before their names in Kafka."""
        repartitions = frozenset[str]().union(*(part.repartition_sinks for part in self._subtopologies))
        return repartitions | {f"{store}-changelog" for part in self._subtopologies for store in part.logged_stores}

    @property
    def fingerprint(self) -> str:
        """A digest of all that the instances of one application must agree on.

        It covers numbers and names of subtopologies, legs, topics and stores, formats, and the steps' text. It does not
        cover lines of code, seeds of ``rand()``, or what is inside a Python function.
        """
        parts = [_leg_parts(leg) for leg in (*self.legs, *self.global_tables)]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def describe(self) -> str:
        """Return the topology as text, laid out like Kafka Streams' ``TopologyDescription``."""
        return describe(self._subtopologies, self._global_tables)

    def to_dot(self) -> str:
        """Return the topology as a graph in Graphviz's language: ``dot -Tsvg`` draws it, as many editors do."""
        return dot(self._subtopologies, self._global_tables)

    def graph(self) -> dict[str, Any]:
        """Return the topology as :meth:`to_dot` does, as ``nodes`` and ``edges``: what the live page draws."""
        return graph(self._subtopologies, self._global_tables)

    def __repr__(self) -> str:
        return f"<Topology of {len(self._subtopologies)} subtopologies reading {', '.join(sorted(self.source_topics))}>"


def _leg_parts(leg: Leg) -> dict[str, Any]:
    source, aggregation = leg.source, leg.aggregation
    return {
        # Only where there are some: instances of the release before must find theirs unchanged.
        **({"lookups": [lookup.store for lookup in leg.lookups]} if leg.lookups else {}),
        **({"changes of": leg.changes_of} if leg.changes_of is not None else {}),
        **({"table join": _join_parts(leg.table_join)} if leg.table_join is not None else {}),
        **({"late for": leg.late_for.store} if leg.late_for is not None else {}),
        **({"action": leg.action.text} if leg.action is not None else {}),
        **({leg.emitting.kind: [*leg.emitting.parts]} if leg.emitting is not None else {}),
        **({"changelog": leg.reused_topic} if leg.reused_topic is not None else {}),
        "id": leg.id,
        "subtopology": leg.subtopology,
        "topics": source.topics,
        "internal": source.internal,
        "formats": [format_text(source.key), format_text(source.value), source.timestamp],
        "store": None if aggregation is None else aggregation.store,
        "aggregation": None if aggregation is None else [aggregation.text, *aggregation.keys],
        "steps": [*leg.texts],
        "sink": _sink_parts(leg.sink),
    }


def _join_parts(join: TableJoin | str) -> list[Any] | str:
    if isinstance(join, str):
        return join
    referencing = [] if join.referencing is None else [_join_parts(join.referencing)]
    return [join.text, _join_parts(join.left), _join_parts(join.right), *referencing]


def _sink_parts(sink: Sink | None) -> list[Any]:
    if sink is None:
        return []
    key = sink.key if isinstance(sink.key, str | tuple) else format_text(sink.key)
    # Only where it is so: instances of the release before must find theirs unchanged.
    changes = ["changes"] if sink.changes else []
    changes += ["to all"] if sink.to_all else []
    headers = [["headers", sink.headers]] if sink.headers is not None else []
    return [sink.topic, sink.internal, key, format_text(sink.value), sink.partitions, *changes, *headers]
