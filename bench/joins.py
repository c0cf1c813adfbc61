"""The workload of joins: each record is joined with what was answered to its user within two seconds.

Both topics hold the records of ``bench.windows``, the second one with event times of a second later, as the answers. So
each record finds its own answer, and now and then one to another record of its user. A pass is one of both topics.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bench.results import merged, read_rows
from bench.windows import DELAY_S, WindowWorkload
from bench.workload import NEVER_DELETED, PARTITIONS, write_records
from sparkrelay.devkafka.topics import create_topic, delete_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.results import Totals

__all__ = ["WITHIN_S", "JoinWorkload", "found_pairs"]

WITHIN_S = 2
_ANSWERED_AFTER_S = 1
_ROWS = pa.schema([("user", pa.string()), ("amount", pa.float64())])


@dataclass(frozen=True, slots=True)
class JoinWorkload(WindowWorkload):
    """How much there is to do; ``records`` are those of one topic."""

    keys: int = 1_000_000

    @property
    def closing(self) -> int:
        """Pairs go out at once: nothing has to end."""
        return 0

    @property
    def a_pass(self) -> int:
        """Records of both topics."""
        return 2 * self.records

    def orders(self, source: str) -> dict[str, Any]:
        """Return what an instance's orders say of the query."""
        return {"query": "join", "answers": _answers_of(source), "within_s": WITHIN_S, "delay_s": DELAY_S}

    def load(self, bootstrap_servers: str, source: str) -> Mapping[str, float]:
        """Make both topics and write all passes."""
        started = time.perf_counter()
        columns = list(self.columns())
        value_bytes = 0
        for topic, after in ((source, 0), (_answers_of(source), _ANSWERED_AFTER_S)):
            create_topic(bootstrap_servers, topic, partitions=PARTITIONS, config=NEVER_DELETED)
            for number in range(self.passes):
                times = [some + after for some in self._times(number)]
                value_bytes = write_records(bootstrap_servers, topic, columns, times=times)
        return {
            "records": self.taken,
            "value_bytes": round(value_bytes / self.records, 1),
            "seconds": round(time.perf_counter() - started, 2),
        }

    def unload(self, bootstrap_servers: str, source: str) -> None:
        """Delete both topics."""
        for topic in (source, _answers_of(source)):
            delete_topic(bootstrap_servers, topic)

    def expected(self) -> Totals:
        """Return how many pairs of each user there must be, and what the amounts of their records come to."""
        passes = [list(self._times(number)) for number in range(self.passes)]
        totals: Totals = {}
        for partition, (users, quarters, _) in enumerate(self.columns()):
            numbers = np.tile(users.dictionary_encode().indices.to_numpy(), self.passes).astype(np.int64)
            times = np.concatenate([times[partition] for times in passes])
            # A user's times lie so far from those of the next one that nothing of both is near.
            places = numbers * (times.max() - times.min() + 100) + times - times.min()
            answers = np.sort(places + _ANSWERED_AFTER_S)
            pairs = np.searchsorted(answers, places + WITHIN_S, "right") - np.searchsorted(answers, places - WITHIN_S)
            counts = np.bincount(numbers, pairs).astype(np.int64).tolist()
            sums = np.bincount(numbers, pairs * np.tile(quarters, self.passes) / 4).tolist()
            names = users.dictionary_encode().dictionary.to_pylist()
            totals |= dict(zip(names, zip(counts, sums, strict=True), strict=True))
        return totals

    def found(self, bootstrap_servers: str, sink: str) -> tuple[Totals, int]:
        """Return how many pairs of each user there are, and what their amounts come to."""
        return found_pairs(bootstrap_servers, sink)


def found_pairs(bootstrap_servers: str, sink: str) -> tuple[Totals, int]:
    """Read what a join wrote; returns pairs of each user with the sum of their amounts, and how many in all."""

    def pairs() -> Iterator[pa.Table]:
        for rows in read_rows(bootstrap_servers, sink, _ROWS):
            ones = pa.array(np.ones(len(rows), np.int64))
            yield pa.table({"user": rows["user"], "orders": ones, "total": rows["amount"]})

    return merged(pairs(), "sum")


def _answers_of(source: str) -> str:
    return f"{source}-answers"
