"""The statements of ``bench.changes``, the rows that they read, and the tables that they are written with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.records.partition import murmur2_partitions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["SOURCES", "STATEMENTS", "Rows", "Statement", "write"]

_BY_USER: Final = "OVER (PARTITION BY user ORDER BY at"


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement, and what it reads.

    Attributes:
        text: SQL, for streams and tables and for Spark batch.
        changing: the source whose rows change while it is measured.
        still: another source, if it reads one.
    """

    text: str
    changing: str
    still: str | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """All that it reads."""
        return (self.changing,) if self.still is None else (self.changing, self.still)

    @property
    def is_of_tables(self) -> bool:
        """True where its rows are a table's: the newest of each key counts."""
        return "orders" not in self.sources


#: Source -> name of its key's column, and its values' columns.
SOURCES: Final[dict[str, tuple[str, str]]] = {
    "people": ("person", "city string, age long"),
    "shops": ("shop", "city string, size long"),
    "orders": ("user", "number long, n long, at timestamp"),
}
STATEMENTS: Final[dict[str, Statement]] = {
    "join": Statement(
        "SELECT person, shop, people.age, shops.size FROM people JOIN shops ON people.city = shops.city",
        "people",
        "shops",
    ),
    "full-join": Statement(
        "SELECT person, shop, people.age, shops.size FROM people FULL JOIN shops ON people.city = shops.city",
        "people",
        "shops",
    ),
    "exists": Statement(
        "SELECT person, age FROM people WHERE EXISTS (SELECT 1 FROM shops WHERE shops.city = people.city AND size > 9)",
        "people",
        "shops",
    ),
    "copied-side": Statement(
        "SELECT person, age FROM people WHERE age > (SELECT avg(size) FROM shops)", "people", "shops"
    ),
    "except": Statement("SELECT city FROM people EXCEPT SELECT city FROM shops WHERE size > 50", "people", "shops"),
    "running-sum": Statement(
        f"SELECT user, number, sum(n) {_BY_USER} ROWS UNBOUNDED PRECEDING) AS total FROM orders", "orders"
    ),
    "last-ten": Statement(
        f"SELECT user, number, avg(n) {_BY_USER} ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS mean FROM orders",
        "orders",
    ),
}


def write(builder: StreamsBuilder, statement: Statement, topics: Mapping[str, str], sink: str) -> None:
    """Write a statement down."""
    for name in statement.sources:
        key, columns = SOURCES[name]
        if name == "orders":
            builder.stream(topics[name], key=String(key), value=Json(columns), name=name)
        else:
            builder.table(topics[name], key=String(key), value=Json(columns), name=name)
    builder.sql(statement.text).to(sink, value=Json())


class Rows:
    """Rows of a source, of which some are in a city; the same for the same seed.

    Args:
        source: its name.
        keys: how many keys it has. Each city has ten of them.
        seed: of what is random.
    """

    def __init__(self, source: str, keys: int, seed: int) -> None:
        self._source, self._keys = source, keys
        self._random = np.random.default_rng(seed)
        self._cities = self._random.integers(0, max(1, keys // 10), keys)
        self._names = [f"{source[0]}{number:07}" for number in range(keys)]
        self._count = 0
        #: Every row, or the newest of each key.
        self.rows: dict[str | int, tuple[str, ...]] = {}

    def filling(self) -> Iterator[tuple[str, str]]:
        """Yield a key and a value for each key."""
        return self._made(range(self._keys))

    def changes(self, count: int) -> Iterator[tuple[str, str]]:
        """Yield so many keys and values of random keys."""
        return self._made(self._random.integers(0, self._keys, count).tolist())

    def parts(self, rows: Iterator[tuple[str, str]], partitions: int) -> list[tuple[pa.Array, pa.Array]]:
        """Return the keys and values of each partition."""
        keys, values = (pa.array(column) for column in zip(*rows, strict=True))
        homes = murmur2_partitions(keys, partitions)
        places = [pa.array(np.flatnonzero(homes == number)) for number in range(partitions)]
        return [(keys.take(at), values.take(at)) for at in places]

    def _made(self, numbers: Iterator[int] | range | list[int]) -> Iterator[tuple[str, str]]:
        for number in numbers:
            name, n = self._names[number], int(self._random.integers(0, 100))
            if self._source == "orders":
                at = f"2026-01-01T{self._count // 3600 % 24:02}:{self._count // 60 % 60:02}:{self._count % 60:02}Z"
                at = at.replace("2026-01-01", f"2026-01-{1 + self._count // 86_400:02}")
                value = f'{{"number":{self._count},"n":{n},"at":"{at}"}}'
                self.rows[self._count] = name, value
            else:
                word = "age" if self._source == "people" else "size"
                value = f'{{"city":"c{self._cities[number]}","{word}":{n}}}'
                self.rows[name] = name, value
            self._count += 1
            yield name, value
