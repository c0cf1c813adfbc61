"""Writes events to the three topics, however many they are: a part at a time, and each part to files as well.

Of the files :mod:`bench.nexmark.truth` makes its views.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from bench.nexmark.query import KEYS
from bench.nexmark.truth import event_table
from bench.workload import PARTITIONS, write_values
from sparkrelay.records.keys import key_bytes
from sparkrelay.records.partition import murmur2_partitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from bench.nexmark.events import Event

__all__ = ["load", "parts", "write_events"]

_AT_ONCE: Final = 100_000


def load(
    bootstrap_servers: str, topics: Mapping[str, str], events: Iterable[Event], folder: Path
) -> tuple[dict[str, int], int]:
    """Write events to their topics, and to Parquet files in a folder for each type.

    Args:
        bootstrap_servers: the broker.
        topics: of each type.
        events: in the order in which they arrive, with when (``stamped``). No more than a part of them is in memory.
        folder: an empty one.

    Returns:
        How many of each type there are, and when the last event arrived, milliseconds since 1970.
    """
    counts = dict.fromkeys(KEYS, 0)
    last = 0
    for kind in KEYS:
        (folder / kind).mkdir()
    for number, part in enumerate(parts(events)):
        written = write_events(bootstrap_servers, topics, part)
        for kind in KEYS:
            rows = event_table(kind, [event for event in part if event["type"] == kind])
            pq.write_table(rows, folder / kind / f"{number:06}.parquet")
            counts[kind] += written[topics[kind]]
        last = part[-1]["arrived"]
    return counts, last


def write_events(bootstrap_servers: str, topics: Mapping[str, str], events: Iterable[Event]) -> dict[str, int]:
    """Write the events of some types to their topics; returns how many each topic got."""
    counts = {}
    of_type: dict[str, list[Event]] = {type_: [] for type_ in KEYS}
    for event in events:
        of_type[event["type"]].append(event)
    for type_, topic in topics.items():
        ours = of_type[type_]
        keys = key_bytes([pa.array([event[KEYS[type_]] for event in ours], pa.int64())])
        values = pa.array([json.dumps(event).encode() for event in ours], pa.binary())
        times = pa.array([event["arrived"] for event in ours], pa.int64())
        places = murmur2_partitions(keys, PARTITIONS)
        chosen = [pa.array(places == partition) for partition in range(PARTITIONS)]
        parts = [(keys.filter(mask), values.filter(mask)) for mask in chosen]
        write_values(bootstrap_servers, topic, parts, timestamps=[times.filter(mask) for mask in chosen])
        counts[topic] = len(ours)
    return counts


def parts(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Yield the events in lists, so many at once."""
    left = iter(events)
    while part := list(islice(left, _AT_ONCE)):
        yield part
