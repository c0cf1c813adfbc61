"""What a query wrote, as a table, beside what it should have: for answers of millions of rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from bench.nexmark.compare import RELATIVE, Answer, differences, newest
from bench.results import read_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["answer_table", "differing", "rows_of"]

#: Closing events have negative ones.
_IDS: Final = ("id", "auction", "bidder", "seller")
#: Of larger answers it is only said that they differ: to say where takes each row as a dictionary.
_EXPLAINED: Final = 200_000
_PARSED_AT_ONCE: Final = 100_000


def answer_table(bootstrap_servers: str, sink: str, schema: pa.Schema, *, table: bool) -> tuple[pa.Table, int]:
    """Read a sink to its end.

    Args:
        bootstrap_servers: the broker.
        sink: the topic.
        schema: of the rows that should be there.
        table: of each key the last row counts.

    Returns:
        The rows, without those of closing events, and how many records the sink had.

    Raises:
        pa.ArrowInvalid: a row is no JSON, or has a value of another type.
    """
    count = 0

    def records() -> Iterator[tuple[bytes | None, bytes | None]]:
        nonlocal count
        for messages in read_messages(bootstrap_servers, sink):
            count += len(messages)
            yield from ((message.key(), message.value()) for message in messages)

    values = newest(records()) if table else (value or b"{}" for _, value in records())
    return rows_of(values, schema), count


def rows_of(values: Iterable[bytes], schema: pa.Schema) -> pa.Table:
    """Return rows of JSON as a table with the columns of a schema and what else they have, without closing events'.

    A value ``{"rows": [...]}`` stands for several rows, which change together.
    """
    tables = [_parsed(part, schema) for part in _parts(values)]
    rows = pa.concat_tables([schema.empty_table(), *tables], promote_options="default")
    for name in _IDS:
        if name in rows.column_names:
            rows = rows.filter(pc.greater_equal(pc.fill_null(rows[name], 0), 0))
    return rows


def differing(found: pa.Table, wanted: pa.Table, inexact: frozenset[str]) -> list[str]:
    """Return the first differences in words; none if each row comes as often in both.

    Args:
        found: the rows that came out.
        wanted: those that should have.
        inexact: columns of doubles, which may differ by a billionth.
    """
    if more := set(found.column_names) - set(wanted.column_names):
        return [f"there are columns that SQL has not: {', '.join(sorted(more))}"]
    found = found.select(wanted.column_names)
    if _same(found, wanted, inexact):
        return []
    if max(len(found), len(wanted)) <= _EXPLAINED:
        answer = Answer(tuple(wanted.column_names), inexact, wanted.to_pylist())
        return differences(found.to_pylist(), answer)
    return [f"{len(found)} rows where SQL has {len(wanted)}, and not all the same"]


def _same(found: pa.Table, wanted: pa.Table, inexact: frozenset[str]) -> bool:
    if len(found) != len(wanted):
        return False
    order = sorted(wanted.column_names, key=lambda name: name in inexact)
    found, wanted = (table.sort_by([(name, "ascending") for name in order]) for table in (found, wanted))
    return all(
        _close(found[name], wanted[name]) if name in inexact else found[name].equals(wanted[name]) for name in order
    )


def _close(found: pa.ChunkedArray, wanted: pa.ChunkedArray) -> bool:
    if not found.is_null().equals(wanted.is_null()):
        return False
    ours, theirs = (np.asarray(pc.fill_null(column, 0.0)) for column in (found, wanted))
    return bool(np.isclose(ours, theirs, rtol=RELATIVE, atol=0.0).all())


def _parts(values: Iterable[bytes]) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    for value in values:
        part += _single(value) if value.startswith(b'{"rows":') else [value]
        if len(part) >= _PARSED_AT_ONCE:
            yield part
            part = []
    if part:
        yield part


def _single(value: bytes) -> list[bytes]:
    return [json.dumps(row).encode() for row in json.loads(value)["rows"]]


def _parsed(values: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="infer")
    return pa.json.read_json(pa.BufferReader(b"\n".join(values)), parse_options=options)
