"""The demo's two result tables: read back from their topics, and compared with a plain batch.

A record carries its whole row as JSON, so a table is the last value of each key. Rows are compared by value: how many
flights, the sum and the mean of their delays; the mean as the same double, not nearly so.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from sparkrelay.errors import SerializationException
from sparkrelay.types import TaskId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "BY_CARRIER", "BY_ORIGIN", "FLIGHTS_TOPIC", "OUTPUTS", "PARTITIONS", "Output", "RowKey", "Table", "Totals",
    "Verdict", "compare", "read_row", "read_tables",
]  # fmt: skip

FLIGHTS_TOPIC: Final = "flights"
PARTITIONS: Final = 4
_SHOWN: Final = 5


class Totals(NamedTuple):
    """What the pipeline knows of one group of flights. Delays are minutes, negative for early ones."""

    flights: int
    total_delay: int
    mean_delay: float


#: (carrier, day), such as ``("UA", "2013-01-01")``; or (origin,).
RowKey = tuple[str, ...]
Table = dict[RowKey, Totals]


class Output(NamedTuple):
    """One result table: its topic, the subtopology that writes it, and what finds a row's key in its JSON object."""

    topic: str
    subtopology: int
    row_key: Callable[[Mapping[str, object]], RowKey]

    def task(self, partition: int) -> str:
        """Return the name of the task that counts the keys of this input partition."""
        return str(TaskId(self.subtopology, partition))


def _carrier_and_day(row: Mapping[str, object]) -> RowKey:
    window = row["window"]
    assert isinstance(window, dict)
    # Windows of a day start at midnight UTC; ISO text begins with the date.
    return str(row["carrier"]), str(window["start"])[:10]


BY_CARRIER: Final = Output("delays-by-carrier", 0, _carrier_and_day)
BY_ORIGIN: Final = Output("delays-by-origin", 1, lambda row: (str(row["origin"]),))
OUTPUTS: Final = (BY_CARRIER, BY_ORIGIN)


def read_row(output: Output, value: bytes | None) -> tuple[RowKey, Totals]:
    """Read one record of a result topic.

    Raises:
        SerializationException: it is not one of our rows.
    """
    try:
        row = json.loads(value or b"")
        return output.row_key(row), Totals(int(row["flights"]), int(row["total_delay"]), float(row["mean_delay"]))
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise SerializationException(
            f"a record of {output.topic} is no row of its table: {value!r} ({error})"
        ) from error


def read_tables(text: str) -> dict[str, Table]:
    """Return the tables that the plain batch wrote, by topic."""
    return {topic: {tuple(key): Totals(*totals) for key, *totals in rows} for topic, rows in json.loads(text).items()}


class Verdict(NamedTuple):
    """How the streamed tables compare with the batch.

    Attributes:
        exact: every row is there, equal in every figure, and there is no other row.
        lost: flights that should have been counted and were not, over all rows.
        overcounted: flights counted more often than they should.
        differences: some rows that differ, in words.
    """

    exact: bool
    lost: int
    overcounted: int
    differences: tuple[str, ...]


def compare(expected: Mapping[str, Table], found: Mapping[str, Table]) -> Verdict:
    """Compare tables by topic; ``lost`` and ``overcounted`` are summed over the tables."""
    lost = overcounted = 0
    differences: list[str] = []
    for topic, rows in expected.items():
        streamed = found.get(topic, {})
        for key in sorted(rows.keys() | streamed.keys()):
            wanted, got = rows.get(key), streamed.get(key)
            if wanted != got:
                short = (wanted.flights if wanted else 0) - (got.flights if got else 0)
                lost += max(0, short)
                overcounted += max(0, -short)
                differences.append(f"{topic} {'/'.join(key)}: batch {_words(wanted)}, stream {_words(got)}")
    shown = differences[:_SHOWN]
    if len(differences) > _SHOWN:
        shown.append(f"... and {len(differences) - _SHOWN} more rows")
    return Verdict(not differences, lost, overcounted, tuple(shown))


def _words(totals: Totals | None) -> str:
    if totals is None:
        return "has no such row"
    return f"{totals.flights} flights, {totals.total_delay} min, mean {totals.mean_delay!r}"
