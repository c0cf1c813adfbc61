"""The workload of lookups: each record looks its user up in a table, and goes on with what is there.

The records are those of ``bench.workload``. The table has a row for each user:

    {"name":"name of u004711","country":"C111","points":306298}

A user's number says what its row holds, so every row that comes out can be checked by itself. The table's topic is
written before the records, with earlier timestamps: no record may come out with nothing, or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.children import BenchError
from bench.results import merged, read_rows
from bench.workload import NEVER_DELETED, PARTITIONS, Workload, write_values
from sparkrelay.devkafka.topics import create_topic, delete_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.results import Totals

__all__ = ["TABLE_SCHEMA", "LookupWorkload", "found_rows", "load_table", "table_values"]

TABLE_SCHEMA = "user string, name string, country string, points bigint"
_COUNTRIES = 200
_POINTS = 1_000_003
_STRIDE = 7919
_ROWS = pa.schema(
    [("user", pa.string()), ("amount", pa.float64()), ("country", pa.string()), ("points", pa.int64())]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LookupWorkload(Workload):
    """How much there is to do; ``keys`` is also how many rows the table has."""

    keys: int = 1_000_000

    def orders(self, source: str) -> dict[str, Any]:
        """Return what an instance's orders say of the query."""
        return {"query": "lookup", "table": _table_of(source)}

    def load(self, bootstrap_servers: str, source: str) -> Mapping[str, float]:
        """Make both topics and write the table, then all passes; returns what the records come to."""
        load_table(bootstrap_servers, _table_of(source), self.users())
        return Workload.load(self, bootstrap_servers, source)

    def unload(self, bootstrap_servers: str, source: str) -> None:
        """Delete both topics."""
        Workload.unload(self, bootstrap_servers, source)
        delete_topic(bootstrap_servers, _table_of(source))

    def expected(self) -> Totals:
        """Return how many rows of each user there must be, and what their amounts come to."""
        parts = [pa.table({"user": users, "orders": quarters}) for users, quarters, _ in self.columns()]
        table = pa.concat_tables(parts).group_by("user").aggregate([("orders", "count"), ("orders", "sum")])
        counts, quarters = (np.asarray(table[name]) * self.passes for name in ("orders_count", "orders_sum"))
        rows = zip(counts.tolist(), (quarters / 4).tolist(), strict=True)
        return dict(zip(table["user"].to_pylist(), rows, strict=True))

    def found(self, bootstrap_servers: str, sink: str) -> tuple[Totals, int]:
        """Return how many rows of each user there are, and what their amounts come to, once each row is checked."""
        return found_rows(bootstrap_servers, sink)


def load_table(bootstrap_servers: str, topic: str, users: Sequence[pa.Array]) -> None:
    """Make the table's topic, and write a row for each of these users, by partition."""
    create_topic(bootstrap_servers, topic, partitions=PARTITIONS, config=NEVER_DELETED)
    write_values(bootstrap_servers, topic, [(names, table_values(names)) for names in users])


def table_values(users: pa.Array) -> pa.Array:
    """Return the JSON text of the table's row of each user."""
    countries, points = _held(users)
    pieces = ['{"name":"name of ', users, '","country":"', countries, '","points":', pc.cast(points, pa.string()), "}"]
    return pc.binary_join_element_wise(*pieces, "")


def found_rows(bootstrap_servers: str, sink: str) -> tuple[Totals, int]:
    """Read what lookups wrote; returns rows of each user with the sum of their amounts, and how many in all.

    Raises:
        BenchError: a row does not say what the table holds.
    """

    def checked() -> Iterator[pa.Table]:
        for rows in read_rows(bootstrap_servers, sink, _ROWS):
            countries, points = _held(rows["user"])
            right = pc.and_(pc.equal(rows["country"], countries), pc.equal(rows["points"], points))
            if not pc.all(pc.fill_null(right, fill_value=False)).as_py():
                wrong = rows.filter(pc.invert(pc.fill_null(right, fill_value=False)))
                raise BenchError(f"{len(wrong)} rows in {sink} do not say what the table holds: {wrong.to_pylist()[0]}")
            ones = pa.array(np.ones(len(rows), np.int64))
            yield pa.table({"user": rows["user"], "orders": ones, "total": rows["amount"]})

    return merged(checked(), "sum")


def _held(users: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """Return country and points of each user."""
    numbers = np.asarray(pc.cast(pc.utf8_slice_codeunits(users, 1), pa.int64()))
    countries = pc.binary_join_element_wise("C", pc.cast(pa.array(numbers % _COUNTRIES), pa.string()), "")
    return countries, pa.array(numbers * _STRIDE % _POINTS)


def _table_of(source: str) -> str:
    return f"{source}-table"
