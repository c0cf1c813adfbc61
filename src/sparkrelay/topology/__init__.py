"""The pipeline as a description: what a user chains, and what the runtime reads. It knows no Spark and runs nothing."""

from __future__ import annotations

from sparkrelay.topology.builder import StreamsBuilder
from sparkrelay.topology.call_site import CallSite
from sparkrelay.topology.calls.stateful_steps import Aggregation, NamedAggregate, Order, Ranking, TableJoin
from sparkrelay.topology.global_table import GlobalKTable
from sparkrelay.topology.grouped_stream import GroupedStream
from sparkrelay.topology.streams import KStream, KTable
from sparkrelay.topology.structure import Foreach, ForeachBatch, Leg, Lookup, Show, Sink, Source, Step, Subtopology
from sparkrelay.topology.topology import Topology

__all__ = [
    "Aggregation",
    "CallSite",
    "Foreach",
    "ForeachBatch",
    "GlobalKTable",
    "GroupedStream",
    "KStream",
    "KTable",
    "Leg",
    "Lookup",
    "NamedAggregate",
    "Order",
    "Ranking",
    "Show",
    "Sink",
    "Source",
    "Step",
    "StreamsBuilder",
    "Subtopology",
    "TableJoin",
    "Topology",
]
