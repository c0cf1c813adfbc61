"""How fast records turn into Arrow and back, on one core: ``python -m bench.records [--records N] [--json FILE]``.

Each figure is the best of a few passes over the same data in memory: what is asked is what the code can do, not how
busy the machine is. Every result is compared with what went in.
"""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import json
import os
import platform
import struct
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2

from sparkrelay.records.avro.reader import AvroReader
from sparkrelay.records.avro.writer import columns_to_avro
from sparkrelay.records.batches.codecs import CODEC_NAMES
from sparkrelay.records.batches.decode import decode
from sparkrelay.records.batches.encode import encode
from sparkrelay.records.formats import Arrow, Protobuf
from sparkrelay.records.formatted import columns_to_format, format_to_columns
from sparkrelay.records.json.reader import json_to_columns
from sparkrelay.records.json.writer import columns_to_json
from sparkrelay.records.keys import key_bytes, key_columns
from sparkrelay.records.partition import murmur2_partitions, split_by_partition

if TYPE_CHECKING:
    from collections.abc import Callable

PASSES = 5
ORDER = [
    {"name": "user", "type": ["null", "string"]},
    {"name": "amount", "type": "double"},
    {"name": "item", "type": "long"},
    {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "note", "type": "string"},
]
GOAL = 10_000_000


def best(work: Callable[[], Any], *, passes: int = PASSES) -> tuple[float, Any]:
    """Run it a few times; returns the shortest duration in seconds and the last result."""
    shortest, result = float("inf"), None
    for _ in range(passes):
        started = time.perf_counter()
        result = work()
        shortest = min(shortest, time.perf_counter() - started)
    return shortest, result


def fixed(data: bytes, width: int) -> pa.Array:
    """Cut bytes into a binary column of equal widths."""
    offsets = np.arange(len(data) // width + 1, dtype=np.int32) * width
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def log_of(keys: pa.Array, values: pa.Array, *, codec: str, batch_bytes: int) -> bytes:
    """Lay batches one behind the other with growing offsets, as a Fetch response holds them."""
    log, offset = bytearray(), 0
    for batch in encode(keys, values, timestamps=1_357_016_400_000, compression=codec, max_batch_bytes=batch_bytes):
        at = len(log)
        log += batch.data
        struct.pack_into(">q", log, at, offset)
        offset += batch.record_count
    return bytes(log)


def measure(records: int) -> dict[str, float]:
    """Return records a second by name of what was done."""
    rates: dict[str, float] = {}
    random = np.random.default_rng(20_13)
    keys, values = fixed(random.bytes(records * 8), 8), fixed(random.bytes(records * 100), 100)
    for name, batch_bytes in (("1000 records a batch", 115_000), ("100 records a batch", 11_500)):
        log = log_of(keys, values, codec="none", batch_bytes=batch_bytes)
        seconds, got = best(lambda log=log: decode(log, topic="bench", partition=0, start=0))
        assert got.batch.column("key").equals(keys)
        assert got.batch.column("value").equals(values)
        rates[f"decode, 8 B keys, 100 B values, crc on, {name}"] = records / seconds
    seconds, _ = best(lambda: [batch.record_count for batch in encode(keys, values, timestamps=0)])
    rates["encode, the same, batches of 1 MB"] = records / seconds

    users = pa.array([f"user-{row % 10_000:06d}" for row in range(records)])
    amounts = pa.array(np.arange(records) % 100_000 / 100)
    items = pa.array(np.arange(records))
    times = pa.array(np.arange(records) * 1_000_000).view(pa.timestamp("us", "UTC"))
    notes = pa.array(["a note that makes it about a hundred bytes"]).take(pa.array(np.zeros(records, np.int64)))
    table = pa.RecordBatch.from_arrays([users, amounts, items, notes], names=["user", "amount", "item", "note"])
    seconds, texts = best(lambda: columns_to_json(table), passes=3)
    rates["write JSON: string, double, bigint, string"] = records / seconds
    for codec in CODEC_NAMES[1:]:
        few = records // 4
        log = log_of(keys[:few], texts[:few], codec=codec, batch_bytes=115_000)
        seconds, got = best(lambda log=log: decode(log, topic="bench", partition=0, start=0), passes=3)
        assert got.batch.column("value").equals(texts[:few])
        rates[f"decode JSON values, {codec}, ratio {few * 128 / len(log):.1f}"] = few / seconds
    wanted = pa.schema([("user", pa.string()), ("amount", pa.float64())])
    seconds, (read, bad) = best(lambda: json_to_columns(texts, wanted), passes=3)
    assert not bad
    assert read.column("user").equals(users)
    rates[f"read JSON of {texts.nbytes // records} B to string, double"] = records / seconds

    flat = pa.RecordBatch.from_arrays(
        [users, amounts, items, times, notes], names=["user", "amount", "item", "time", "note"]
    )
    schema_text = json.dumps({"type": "record", "name": "Order", "fields": ORDER})
    seconds, values = best(lambda: columns_to_avro(flat, schema_text), passes=3)
    rates["write Avro: nullable string, double, bigint, timestamp, string"] = records / seconds
    for names in (flat.schema.names, ["user", "amount"]):
        reader = AvroReader(schema_text, None, "value", names)
        seconds, (read, bad) = best(lambda reader=reader: reader.read(values), passes=3)
        assert not bad
        assert read.equals(flat.select(names))
        rates[f"read Avro of {values.nbytes // records} B, {len(names)} of 5 fields"] = records / seconds

    rates |= by_descriptor(flat)
    rates |= by_stream(table.slice(0, records // 10))

    seconds, made = best(lambda: key_bytes([users, times]))
    rates["key bytes of (string, timestamp)"] = records / seconds
    schema = pa.schema([("user", pa.string()), ("time", times.type)])
    seconds, back = best(lambda: key_columns(made, schema))
    assert back == [users, times]
    rates["columns of such keys"] = records / seconds
    seconds, partitions = best(lambda: murmur2_partitions(keys, 12))
    rates["partition, 8 B keys"] = records / seconds
    seconds, _ = best(lambda: split_by_partition(partitions, 12))
    rates["split by 12 partitions"] = records / seconds
    return rates


def by_descriptor(rows: pa.RecordBatch) -> dict[str, float]:
    """Return the rates of Protobuf."""
    file = descriptor_pb2.FileDescriptorProto(
        name="order.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    order = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate((("user", 9), ("amount", 1), ("item", 3), ("time", 11), ("note", 9)), 1):
        one = order.field.add(name=name, number=number, type=kind, label=1)
        if kind == one.TYPE_MESSAGE:
            one.type_name = ".google.protobuf.Timestamp"
    form = Protobuf(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    rates = {}
    for names in (["user", "amount", "item", "note"], rows.schema.names):
        given = rows.select(names)
        seconds, values = best(functools.partial(columns_to_format, given, form), passes=3)
        rates[f"write Protobuf, {len(names)} fields"] = len(values) / seconds
        seconds, (read, bad) = best(functools.partial(format_to_columns, values, form, "value", given.schema), passes=3)
        assert not bad
        assert [*read.values()] == given.columns
        rates[f"read Protobuf of {values.nbytes // len(values)} B, {len(names)} fields"] = len(values) / seconds
    return rates


def by_stream(rows: pa.RecordBatch) -> dict[str, float]:
    """Return the rates of Arrow IPC streams of a row each, and of one of a hundred rows by its rows."""
    seconds, values = best(functools.partial(columns_to_format, rows, Arrow()), passes=3)
    rates = {"write Arrow, a row a record": len(values) / seconds}
    form = Arrow(rows.schema)
    seconds, (read, bad) = best(functools.partial(format_to_columns, values, form, "value", rows.schema), passes=3)
    assert not bad
    assert [*read.values()] == rows.columns
    rates[f"read Arrow of {values.nbytes // len(values)} B, a row a record"] = len(values) / seconds
    head, whole = rows.schema.serialize().to_pybytes(), rows.num_rows // 100
    streams = pa.array([head + rows.slice(at * 100, 100).serialize().to_pybytes() for at in range(whole)], pa.binary())
    listed = pa.schema([("rows", pa.list_(pa.struct(list(rows.schema))))])
    form = Arrow(rows.schema, column="rows")
    seconds, (read, bad) = best(functools.partial(format_to_columns, streams, form, "value", listed), passes=3)
    assert not bad
    assert len(read["rows"].flatten()) == whole * 100
    rates["rows of Arrow, 100 a record"] = whole * 100 / seconds
    return rates


def main() -> int:
    """Print the figures; exit code 1 if decoding misses its goal."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    pa.set_cpu_count(1)
    versions = {name: importlib.metadata.version(name) for name in ("pyarrow", "numba", "numpy", "cramjam", "crc32c")}
    versions["python"] = platform.python_version()
    rates = measure(options.records)
    print(
        f"records: one core of {os.cpu_count()}, {', '.join(f'{name} {version}' for name, version in versions.items())}"
    )
    for name, rate in rates.items():
        print(f"{rate / 1e6:9.2f} M records/s  {name}")
    first = next(iter(rates.values()))
    print(f"goal: decode {GOAL / 1e6:.0f} M records/s: {'met' if first >= GOAL else 'MISSED'}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:  # noqa: PTH123 - a path from the command line
            json.dump({"records": options.records, "versions": versions, "rates": rates}, file, indent=1)
    return 0 if first >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
