"""Rows as an Arrow IPC stream."""

from __future__ import annotations

import pyarrow as pa


def to_stream(rows: pa.RecordBatch | pa.Table) -> bytes:
    """Return rows as a stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_stream(data: bytes) -> pa.RecordBatch:
    """Return the one batch of a stream of :func:`to_stream`."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_next_batch()
