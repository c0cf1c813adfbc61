"""The workload of windows: records are counted and summed by user and ten seconds of event time.

The records are those of ``bench.workload`` with a field more, their event time in seconds since 1970:

    {"user":"u004711","amount":12.25,"action":"buy","n":1234567,"time":1767222123,"note":"......"}

Event times advance evenly over the passes, ten windows a pass, so that windows end all the time. Neighbours are up to
two seconds out of order, which is less than the delay of the watermark: no record is late, in any system. Behind the
last pass each partition has a record of a minute later, which ends all windows but its own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.results import merged, read_rows
from bench.workload import NEVER_DELETED, PARTITIONS, Workload, kept, write_records
from sparkrelay.devkafka.topics import create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.results import Totals

__all__ = ["DELAY_S", "WINDOW_S", "WindowWorkload", "found_windows", "window_totals"]

WINDOW_S = 10
DELAY_S = 5
_WINDOWS_PER_PASS = 10
_OUT_OF_ORDER_S = 3
_CLOSING_AFTER_S = 60
_CLOSING_QUARTERS = 4
_SEED = 20_27
_ROWS = pa.schema([("user", pa.string()), ("start", pa.int64()), ("orders", pa.int64()), ("total", pa.float64())])


def _now() -> int:
    return int(time.time()) // WINDOW_S * WINDOW_S


@dataclass(frozen=True, slots=True)
class WindowWorkload(Workload):
    """How much there is to do, and what becomes of windows.

    Attributes:
        final: each window's row is written once, when it is over (append mode); else each update is.
        delay_s: of the watermark; None: no watermark, so that windows are kept for ever.
        ends: event time of the last pass's end, seconds since 1970. (Sinks delete what is old by event time.)
    """

    final: bool = True
    delay_s: int | None = DELAY_S
    ends: int = field(default_factory=_now)

    @property
    def closing(self) -> int:
        """One record for each partition."""
        return PARTITIONS

    def orders(self, source: str) -> dict[str, Any]:
        """Return what an instance's orders say of the query."""
        del source
        return {"query": "windows", "window_s": WINDOW_S, "delay_s": self.delay_s, "final": self.final}

    def load(self, bootstrap_servers: str, source: str) -> Mapping[str, float]:
        """Make the topic and write all passes, and what ends their windows."""
        create_topic(bootstrap_servers, source, partitions=PARTITIONS, config=NEVER_DELETED)
        started = time.perf_counter()
        columns = list(self.columns())
        value_bytes = 0
        for number in range(self.passes):
            value_bytes += write_records(bootstrap_servers, source, columns, times=list(self._times(number)))
        users, quarters, action = self._closing_records()
        parts = [(users.slice(partition, 1), quarters[:1], action) for partition in range(PARTITIONS)]
        write_records(bootstrap_servers, source, parts, times=[np.array([self._closing_time])] * PARTITIONS)
        return {
            "records": self.taken,
            "value_bytes": round(value_bytes / (self.records * self.passes), 1),
            "seconds": round(time.perf_counter() - started, 2),
        }

    def expected(self) -> Totals:
        """Return what each window's row must say; the last ones only where updates are written."""
        parts = []
        for number in range(self.passes):
            for (users, quarters, actions), times in zip(self.columns(), self._times(number), strict=True):
                mask = kept(actions)
                parts.append(window_totals(users.filter(pa.array(mask)), quarters[mask], times[mask]))
        if not self.final:
            users, quarters, _ = self._closing_records()
            parts.append(window_totals(users, quarters, np.full(PARTITIONS, self._closing_time)))
        totals, _ = merged(parts, "sum")
        return totals

    def found(self, bootstrap_servers: str, sink: str) -> tuple[Totals, int]:
        """Return what the rows of each window come to: all of them, if they are final, else the last one's."""
        return found_windows(bootstrap_servers, sink, final=self.final)

    def _times(self, number: int) -> Iterator[np.ndarray]:
        """Yield the event times of a pass, for each partition."""
        random = np.random.default_rng(_SEED + number)
        each, span = self.records // PARTITIONS, _WINDOWS_PER_PASS * WINDOW_S
        began = self.ends - (self.passes - number) * span
        for _ in range(PARTITIONS):
            yield began + np.arange(each) * span // each - random.integers(0, _OUT_OF_ORDER_S, each)

    @property
    def _closing_time(self) -> int:
        return self.ends + _CLOSING_AFTER_S

    def _closing_records(self) -> tuple[pa.Array, np.ndarray, np.ndarray]:
        """Return a user of each partition, with what its record says."""
        users = pa.array([names[0].as_py() for names in self.users()])
        return users, np.full(PARTITIONS, _CLOSING_QUARTERS), np.zeros(1, np.int64)


def window_totals(users: pa.Array, quarters: np.ndarray, times: np.ndarray) -> pa.Table:
    """Return what records that are kept come to by user and window, as rows of ``bench.results.merged``.

    Args:
        users: of each record.
        quarters: its amount.
        times: its event time, seconds since 1970.
    """
    starts = pa.array(times // WINDOW_S * WINDOW_S * 1000)
    ones = pa.array(np.ones(len(users), np.int64))
    rows = pa.table({"user": _named(users, starts), "orders": ones, "total": pa.array(quarters / 4)})
    groups = rows.group_by("user").aggregate([("orders", "sum"), ("total", "sum")])
    return groups.select(["user", "orders_sum", "total_sum"]).rename_columns(["user", "orders", "total"])


def found_windows(bootstrap_servers: str, sink: str, *, final: bool) -> tuple[Totals, int]:
    """Read rows of windows. Two final rows of one window add up, and so are not what is expected."""
    rows: Iterator[pa.Table] = (
        table.set_column(0, "user", _named(table["user"], table["start"]))
        for table in read_rows(bootstrap_servers, sink, _ROWS)
    )
    return merged(rows, "sum" if final else "last")


def _named(users: pa.Array | pa.ChunkedArray, starts: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return pc.binary_join_element_wise(users, pc.cast(starts, pa.string()), "@")
