"""The finished topology: subtopologies, names, a description for people, a fingerprint for other instances."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkrelay.topology.plan import Leg, Subtopology

__all__ = ["Topology"]


@dataclass(frozen=True)
class Topology:
    """What ``StreamsBuilder.build()`` returns; ``KafkaStreams`` runs it.

    Attributes:
        subtopologies: in the order of their first source.
    """

    subtopologies: tuple[Subtopology, ...]

    @property
    def legs(self) -> tuple[Leg, ...]:
        """Every leg, subtopology by subtopology."""
        return tuple(leg for subtopology in self.subtopologies for leg in subtopology.legs)

    @property
    def source_topics(self) -> tuple[str, ...]:
        """Topics that must exist before the start."""
        return tuple(dict.fromkeys(t for leg in self.legs if not leg.source.internal for t in leg.source.topics))

    @property
    def internal_topics(self) -> tuple[str, ...]:
        """Topics that the application makes, without the application id that their names start with."""
        repartition = [leg.sink.topic for leg in self.legs if leg.sink is not None and leg.sink.internal]
        changelogs = [f"{leg.aggregation.store}-changelog" for leg in self.legs if leg.aggregation is not None]
        return tuple(dict.fromkeys(repartition + changelogs))

    def describe(self) -> str:
        """Return sub-topologies, sources, steps, stores and sinks, as Kafka Streams' ``Topology.describe()`` does."""
        lines = ["Topologies:"]
        for subtopology in self.subtopologies:
            lines.append(f"   Sub-topology: {subtopology.id}")
            for leg in subtopology.legs:
                lines += _describe(leg)
        return "\n".join(lines) + "\n"

    @property
    def fingerprint(self) -> str:
        """A hash of all that instances of one application must agree on; where a step stands in a file is not."""
        parts = [
            f"{leg.id} {leg.subtopology} " + " ".join(line.strip() for line in _describe(leg)) for leg in self.legs
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _describe(leg: Leg) -> list[str]:
    source = leg.source
    formats = "" if source.internal else f", key: {source.key}, value: {source.value}"
    timestamp = f", timestamp: {source.timestamp}" if source.timestamp else ""
    lines = [f"    Source: {source.name} (topics: [{', '.join(source.topics)}]{formats}{timestamp})"]
    lines += [f"      --> {step.text}" for step in leg.before]
    if leg.aggregation is not None:
        lines.append(f"      --> {leg.aggregation.text} (store: {leg.aggregation.store})")
    lines += [f"      --> {step.text}" for step in leg.after]
    if leg.sink is not None:
        sink = leg.sink
        kind = "Repartition" if sink.internal else "Sink"
        key = f", key: {', '.join(sink.key)}" if sink.key else ""
        value = "" if sink.internal else f", value: {sink.value}"
        lines.append(f"      --> {kind}: {sink.topic}{key}{value}")
    return lines
