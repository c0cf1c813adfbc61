"""The demo's two result tables: how they are read from their topics and compared with a plain Spark batch.

A record carries its whole row as JSON, so a table is the last value of each key. Figures must be equal, the mean to the
last bit.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkrelay.errors import SerializationException
from sparkrelay.types import TaskId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FLIGHTS_TOPIC: Final = "flights"
PARTITIONS: Final = 4
_MAX_DIFFERENCES_SHOWN: Final = 5


class Totals(NamedTuple):
    """The figures of one group of flights. Delays are minutes, negative for early ones."""

    flights: int
    total_delay: int
    mean_delay: float


#: (carrier, day), such as ``("UA", "2013-01-01")``; or (origin,).
RowKey = tuple[str, ...]
Table = dict[RowKey, Totals]


class Output(NamedTuple):
    """A result table: its topic, the subtopology that writes it, and how to find the key of a JSON row."""

    topic: str
    subtopology: int
    row_key: Callable[[Mapping[str, Any]], RowKey]

    def task(self, partition: int) -> str:
        """Return the task that counts the keys of this input partition."""
        return str(TaskId(self.subtopology, partition))


#: Daily windows start at midnight UTC; ISO text begins with the date.
BY_CARRIER: Final = Output("delays-by-carrier", 0, lambda row: (str(row["carrier"]), str(row["window"]["start"])[:10]))
BY_ORIGIN: Final = Output("delays-by-origin", 1, lambda row: (str(row["origin"]),))
OUTPUTS: Final = (BY_CARRIER, BY_ORIGIN)


def read_row(output: Output, value: bytes | None) -> tuple[RowKey, Totals]:
    """Return the key and the figures of a result record.

    Raises:
        SerializationException: it is not a row of the table.
    """
    try:
        row = json.loads(value or b"")
        return output.row_key(row), Totals(int(row["flights"]), int(row["total_delay"]), float(row["mean_delay"]))
    except (ValueError, KeyError, TypeError) as error:
        raise SerializationException(
            f"a record of {output.topic} is not a row of its table: {value!r} ({error})"
        ) from error


def read_tables(text: str) -> dict[str, Table]:
    """Return the tables that the plain batch wrote, by topic."""
    return {topic: {tuple(key): Totals(*totals) for key, *totals in rows} for topic, rows in json.loads(text).items()}


class Verdict(NamedTuple):
    """The streamed tables compared with the batch.

    Attributes:
        exact: both have the same rows with the same figures.
        lost: missing flights, summed over all rows.
        overcounted: surplus flights, summed over all rows.
        differences: some differing rows, described.
    """

    exact: bool
    lost: int
    overcounted: int
    differences: tuple[str, ...]


def compare(expected: Mapping[str, Table], found: Mapping[str, Table]) -> Verdict:
    """Compare tables by topic."""
    lost = overcounted = 0
    differences: list[str] = []
    for topic, rows in expected.items():
        streamed = found.get(topic, {})
        for key in sorted(rows.keys() | streamed.keys()):
            wanted, got = rows.get(key), streamed.get(key)
            if wanted != got:
                missing = (wanted.flights if wanted else 0) - (got.flights if got else 0)
                lost += max(0, missing)
                overcounted += max(0, -missing)
                differences.append(f"{topic} {'/'.join(key)}: batch {_described(wanted)}, stream {_described(got)}")
    shown = differences[:_MAX_DIFFERENCES_SHOWN]
    if more := len(differences) - len(shown):
        shown.append(f"... and {more} more rows")
    return Verdict(not differences, lost, overcounted, tuple(shown))


def _described(totals: Totals | None) -> str:
    if totals is None:
        return "has no such row"
    return f"{totals.flights} flights, {totals.total_delay} min, mean {totals.mean_delay!r}"
