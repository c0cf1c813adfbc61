"""Writing a pipeline down: ``StreamsBuilder``, ``KStream``, ``KTable``, ``Topology``. Plans, does not run."""

from sparkrelay.topology.builder import StreamsBuilder
from sparkrelay.topology.plan import Aggregation, CallSite, Leg, Sink, Source, Step, Subtopology
from sparkrelay.topology.streams import GROUP_KEY_PREFIX, GroupedStream, KStream, KTable
from sparkrelay.topology.topology import Topology

__all__ = [
    "GROUP_KEY_PREFIX",
    "Aggregation",
    "CallSite",
    "GroupedStream",
    "KStream",
    "KTable",
    "Leg",
    "Sink",
    "Source",
    "Step",
    "StreamsBuilder",
    "Subtopology",
    "Topology",
]
