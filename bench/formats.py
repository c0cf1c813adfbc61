"""Formats: what a pipeline costs whose records are Avro or Protobuf, as a share of the throughput with JSON.

The drain of ``bench.drain`` from three topics that hold the same rows, each in a format of its own. Results are JSON.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bench.drain import Case, compared, run_rounds
from bench.systems import RELAY, Variant
from bench.workload import ACTIONS, NEVER_DELETED, NOTE, PARTITIONS, SCHEMA, Workload, write_values
from sparkrelay.devkafka.topics import create_topic, delete_topic
from sparkrelay.records.formats import Avro, Json, Protobuf
from sparkrelay.records.formatted import columns_to_format

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.records.formats import Format

__all__ = ["FormatWorkload", "formats", "record_format"]

NAMES = ("json", "avro", "protobuf")


@functools.cache
def record_format(name: str) -> Format:
    """Return the format of a topic's values: all columns but the user, which is the key."""
    columns = [column.split() for column in SCHEMA.split(", ")[1:]]
    if name == "json":
        return Json(SCHEMA.partition(", ")[2])
    if name == "avro":
        fields = [{"name": column, "type": "long" if kind == "bigint" else kind} for column, kind in columns]
        return Avro({"type": "record", "name": "Order", "fields": fields})
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    message = file.message_type.add(name="Order")
    field = descriptor_pb2.FieldDescriptorProto
    types = {"double": field.TYPE_DOUBLE, "string": field.TYPE_STRING, "bigint": field.TYPE_INT64}
    for number, (column, kind) in enumerate(columns, 1):
        message.field.add(name=column, number=number, type=types[kind], label=field.LABEL_OPTIONAL)
    return Protobuf(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())


@dataclass(frozen=True, slots=True)
class FormatWorkload(Workload):
    """How much there is to do, and of which format the records are.

    Attributes:
        format: of the topic that is read.
    """

    format: str = "json"

    def orders(self, source: str) -> dict[str, Any]:
        """Return what an instance's orders say of the query."""
        return {"query": "totals", "format": self.format, "source": f"{source}-{self.format}"}

    def load(self, bootstrap_servers: str, source: str) -> Mapping[str, float]:
        """Make a topic for each format and write all passes."""
        rows, first = [], 0
        for users, quarters, actions in self.columns():
            columns = {
                "amount": pa.array(quarters / 4),
                "action": pa.array(ACTIONS).take(pa.array(actions)),
                "n": pa.array(np.arange(first, first + len(users))),
                "note": pa.repeat(NOTE, len(users)),
            }
            rows.append((users, pa.record_batch(columns)))
            first += len(users)
        sizes = {}
        for name in NAMES:
            topic, form = f"{source}-{name}", record_format(name)
            create_topic(bootstrap_servers, topic, partitions=PARTITIONS, config=NEVER_DELETED)
            parts = [(users, columns_to_format(some, form)) for users, some in rows]
            written = write_values(bootstrap_servers, topic, parts, passes=self.passes)
            sizes[f"{name}_value_bytes"] = round(written / self.records, 1)
        return {"records": self.records * self.passes, **sizes}

    def unload(self, bootstrap_servers: str, source: str) -> None:
        """Delete what :meth:`load` has made."""
        for name in NAMES:
            delete_topic(bootstrap_servers, f"{source}-{name}")


def formats(
    bootstrap_servers: str,
    *,
    workload: FormatWorkload,
    repeats: int,
    on_figures: Callable[[dict[str, Any]], None],
) -> list[dict[str, Any]]:
    """Drain each topic, ``repeats`` times.

    Args:
        bootstrap_servers: the broker.
        workload: what to drain.
        repeats: rounds.
        on_figures: called with each run's figures.

    Returns:
        A line for each format; those but JSON's have the ratio to JSON's rate, as the median of the rounds.

    Raises:
        BenchError: an instance failed, or its output is not exact.
    """
    variant = Variant(RELAY, workload.records // 5)
    cases = [Case(f"{variant.name}: {name}", variant, replace(workload, format=name)) for name in NAMES]
    runs = run_rounds(bootstrap_servers, "formats", cases, repeats=repeats, on_figures=on_figures)
    return compared("formats", runs, *cases)
