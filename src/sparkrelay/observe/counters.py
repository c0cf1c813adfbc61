"""What an instance counts from its start to its end: batches, records, rebalances, errors.

Plain numbers behind a lock. Whoever publishes them, in whatever format, reads a copy.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Counters", "Durations", "Totals"]

#: Upper bounds of the buckets, in seconds: an idle pipeline's batch takes some 20 ms, a big one half a minute.
_BOUNDS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class Durations:
    """How long something took, many times.

    Attributes:
        bounds_s: upper bounds of the buckets, in seconds, ascending; what took longer is only in ``count``.
        counts: for each bound, how many took as long or less.
        count: how many there were.
        total_s: seconds of all of them.
    """

    bounds_s: tuple[float, ...] = _BOUNDS_S
    counts: tuple[int, ...] = (0,) * len(_BOUNDS_S)
    count: int = 0
    total_s: float = 0.0

    def with_one(self, seconds: float) -> Durations:
        """Return these and one more."""
        first = bisect_left(self.bounds_s, seconds)
        counts = tuple(count + (index >= first) for index, count in enumerate(self.counts))
        return Durations(self.bounds_s, counts, self.count + 1, self.total_s + seconds)


@dataclass(frozen=True, slots=True)
class Totals:
    """A copy of the counters.

    Attributes:
        batches: micro-batches, by how long they took, from listing the inputs to the last commit.
        commits: the commits at the end of micro-batches, by how long they took.
        rebalances: finished rebalances, by how long they took: from joining until every task was in service.
        records: offsets of each input topic that committed batches passed.
        rows_written: rows written to sink and repartition topics by batches that went well.
        skipped: records of each input topic that were left out by an exception handler.
        lost: offsets of each input topic whose records were deleted before anybody had read them.
        late: rows that each store's step dropped because they arrived after the watermark or the table's history.
        restored: changelog records that restores and standbys have applied.
        reopened: times a task was initialized again because a batch left it in doubt.
        errors: what went wrong, by where: ``batch`` (it runs again), ``broker`` (it is asked again), ``state`` (a
            task's was set aside), ``thread`` (the instance ends).
        last_batch_at: when the last micro-batch ended, in seconds since the epoch; None before the first.
    """

    batches: Durations
    commits: Durations
    rebalances: Durations
    records: Mapping[str, int]
    rows_written: int
    skipped: Mapping[str, int]
    lost: Mapping[str, int]
    late: Mapping[str, int]
    restored: int
    reopened: int
    errors: Mapping[str, int]
    last_batch_at: float | None


class Counters:
    """Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches = self._commits = self._rebalances = Durations()
        self._records: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        self._late: Counter[str] = Counter()
        self._rows_written = self._restored = self._reopened = 0
        self._errors: Counter[str] = Counter({"batch": 0, "broker": 0, "state": 0, "thread": 0})
        self._last_batch_at: float | None = None

    def batch(
        self,
        *,
        at: float,
        seconds: float,
        commit_seconds: float | None,
        records: Mapping[str, int],
        rows_written: int,
        reopened: int,
        failed: bool,
        skipped: Mapping[str, int] = MappingProxyType({}),
        late: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Count a micro-batch; ``commit_seconds`` is None if it came to no commit."""
        with self._lock:
            self._batches = self._batches.with_one(seconds)
            if commit_seconds is not None:
                self._commits = self._commits.with_one(commit_seconds)
            self._records.update(records)
            self._rows_written += rows_written
            self._skipped.update(skipped)
            self._late.update(late)
            self._reopened += reopened
            self._errors["batch"] += failed
            self._last_batch_at = at

    def lost(self, records: Mapping[str, int]) -> None:
        """Count offsets of input topics whose records were deleted unread."""
        with self._lock:
            self._lost.update(records)

    def rebalance(self, seconds: float) -> None:
        """Count a finished rebalance."""
        with self._lock:
            self._rebalances = self._rebalances.with_one(seconds)

    def restored(self, records: int) -> None:
        """Count changelog records."""
        with self._lock:
            self._restored += records

    def error(self, where: str) -> None:
        """Count an error; see :class:`Totals` for the places."""
        with self._lock:
            self._errors[where] += 1

    def totals(self) -> Totals:
        """Return a copy."""
        with self._lock:
            return Totals(
                batches=self._batches,
                commits=self._commits,
                rebalances=self._rebalances,
                records=MappingProxyType(dict(self._records)),
                rows_written=self._rows_written,
                skipped=MappingProxyType(dict(self._skipped)),
                lost=MappingProxyType(dict(self._lost)),
                late=MappingProxyType(dict(self._late)),
                restored=self._restored,
                reopened=self._reopened,
                errors=MappingProxyType(dict(self._errors)),
                last_batch_at=self._last_batch_at,
            )
