"""The pipeline as a description: what a user chains, and what the runtime reads. It runs nothing."""

from __future__ import annotations

from sparkrelay.topology.builder import StreamsBuilder
from sparkrelay.topology.call_site import CallSite
from sparkrelay.topology.global_table import GlobalKTable
from sparkrelay.topology.grouped_stream import GroupedStream
from sparkrelay.topology.parts import Collected, Lookup, Segment
from sparkrelay.topology.streams import KStream, KTable
from sparkrelay.topology.structure import (
    Aggregation,
    Foreach,
    ForeachBatch,
    Leg,
    Order,
    Ranking,
    Show,
    Sink,
    Source,
    Subtopology,
    TableJoin,
)
from sparkrelay.topology.topology import Topology

__all__ = [
    "Aggregation",
    "CallSite",
    "Collected",
    "Foreach",
    "ForeachBatch",
    "GlobalKTable",
    "GroupedStream",
    "KStream",
    "KTable",
    "Leg",
    "Lookup",
    "Order",
    "Ranking",
    "Segment",
    "Show",
    "Sink",
    "Source",
    "StreamsBuilder",
    "Subtopology",
    "TableJoin",
    "Topology",
]
