"""What a query wrote beside what it should have: for answers of millions of rows, which are compared as files."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet as pq

from bench.nexmark.compare import RELATIVE, Answer, differences, newest
from bench.nexmark.truth import keep_truth
from bench.results import read_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from bench.nexmark.query import Query

__all__ = ["differing", "differing_files", "differing_rows", "keep_answer", "rows_of"]

#: Closing events have negative ones.
_IDS: Final = ("id", "auction", "bidder", "seller")
#: Larger answers are compared by Spark, which needs no more memory for them.
_IN_MEMORY: Final = 2_000_000
_SHOWN: Final = 3
#: Of larger answers it is only said that they differ: to say where takes each row as a dictionary.
_EXPLAINED: Final = 200_000
_PARSED_AT_ONCE: Final = 100_000


def keep_answer(bootstrap_servers: str, sink: str, schema: pa.Schema, folder: Path, *, table: bool) -> tuple[int, int]:
    """Read a sink to its end, and keep its rows as Parquet files, but for those of closing events.

    Args:
        bootstrap_servers: the broker.
        sink: the topic.
        schema: of the rows that should be there.
        folder: a new one, for the files.
        table: of each key the last row counts.

    Returns:
        How many rows there are, and how many records the sink has.

    Raises:
        pa.ArrowInvalid: a row is no JSON, or has a value of another type.
        ValueError: a row has a column that it should not have.
    """
    count = 0
    folder.mkdir()

    def records() -> Iterator[tuple[bytes | None, bytes | None]]:
        nonlocal count
        for messages in read_messages(bootstrap_servers, sink):
            count += len(messages)
            yield from ((message.key(), message.value()) for message in messages)

    values = newest(records()) if table else (value or b"{}" for _, value in records())
    kept = 0
    pq.write_table(schema.empty_table(), folder / "none.parquet")
    for number, rows in enumerate(rows_of(values, schema)):
        pq.write_table(rows, folder / f"{number:06}.parquet")
        kept += len(rows)
    return kept, count


def rows_of(values: Iterable[bytes], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield rows of JSON, many at once, with the columns of a schema, and without those of closing events.

    A value ``{"rows": [...]}`` stands for several rows, which change together.

    Raises:
        pa.ArrowInvalid: a row is no JSON, or has a value of another type.
        ValueError: a row has another column.
    """
    for part in _parts(values):
        rows = _parsed(part, schema)
        if more := set(rows.column_names) - set(schema.names):
            raise ValueError(f"there are columns that SQL has not: {', '.join(sorted(more))}")
        rows = rows.select(schema.names)
        for name in _IDS:
            if name in rows.column_names:
                rows = rows.filter(pc.greater_equal(pc.fill_null(rows[name], 0), 0))
        yield rows


def differing_rows(spark: SparkSession, query: Query, rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return the first differences of rows from those of a query's SQL, in words.

    Both are compared as files: answers may be larger than the JVM's heap.

    Args:
        spark: a session with the views.
        query: whose rows.
        rows: without those of closing events.
    """
    with tempfile.TemporaryDirectory() as folder:
        found, wanted = Path(folder) / "found", Path(folder) / "wanted"
        schema, inexact = keep_truth(spark, query, wanted)
        found.mkdir()
        pq.write_table(schema.empty_table(), found / "none.parquet")
        try:
            for number, part in enumerate(rows_of((json.dumps(row).encode() for row in rows), schema)):
                pq.write_table(part, found / f"{number:06}.parquet")
        except (pa.ArrowInvalid, ValueError) as error:
            return [f"rows cannot be read: {error}"]
        return differing_files(spark, found, wanted, inexact)


def differing_files(spark: SparkSession, found: Path, wanted: Path, inexact: frozenset[str]) -> list[str]:
    """Return the first differences in words, as :func:`differing` does; small answers in memory, others by Spark.

    Args:
        spark: a session.
        found: a folder of Parquet files with the rows that came out.
        wanted: another one, with those that should have.
        inexact: columns of doubles.
    """
    counts = [sum(pq.read_metadata(file).num_rows for file in folder.glob("*.parquet")) for folder in (found, wanted)]
    if max(counts) <= _IN_MEMORY:
        return differing(pq.read_table(found), pq.read_table(wanted), inexact)
    if counts[0] != counts[1]:
        return [f"{counts[0]} rows where SQL has {counts[1]}"]
    # Doubles of as many digits as are sure.
    names = pq.read_schema(next(wanted.glob("*.parquet"))).names
    columns = [f"format_string('%.8e', {name}) AS {name}" if name in inexact else name for name in names]
    ours, theirs = (spark.read.parquet(str(folder)).selectExpr(*columns) for folder in (found, wanted))
    return [f"{row.asDict()} is more often than in SQL" for row in ours.exceptAll(theirs).limit(_SHOWN).collect()]


def differing(found: pa.Table, wanted: pa.Table, inexact: frozenset[str]) -> list[str]:
    """Return the first differences in words; none if each row comes as often in both.

    Args:
        found: the rows that came out.
        wanted: those that should have.
        inexact: columns of doubles, which may differ by a billionth.
    """
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
