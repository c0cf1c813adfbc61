"""Counters of an instance's lifetime: batches, records, rebalances, errors. Publishers read an immutable copy."""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Upper bounds of the buckets, in seconds: an idle pipeline's batch takes some 20 ms, a big one half a minute.
_BOUNDS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class Durations:
    """A histogram of durations.

    Attributes:
        bounds_s: ascending upper bounds of the buckets, in seconds; longer durations are in ``count`` only.
        counts: for each bound, the number of durations up to it.
        count: number of durations.
        total_s: their sum, in seconds.
    """

    bounds_s: tuple[float, ...] = _BOUNDS_S
    counts: tuple[int, ...] = (0,) * len(_BOUNDS_S)
    count: int = 0
    total_s: float = 0.0

    def with_one(self, seconds: float) -> Durations:
        """Return a histogram with one more duration."""
        first = bisect_left(self.bounds_s, seconds)
        counts = tuple(count + (index >= first) for index, count in enumerate(self.counts))
        return Durations(self.bounds_s, counts, self.count + 1, self.total_s + seconds)


_NONE: Final = Durations()


@dataclass(frozen=True, slots=True)
class Totals:
    """The counters at one moment.

    Attributes:
        batches: duration of micro-batches, from listing the inputs to the last commit.
        commits: duration of the commits at the end of micro-batches.
        rebalances: duration of finished rebalances, from joining until every task was in service.
        records: offsets of each input topic that committed batches passed.
        rows_written: rows that successful batches wrote to sink and repartition topics.
        skipped: records of each input topic that an exception handler left out.
        lost: offsets of each input topic whose records were deleted unread.
        late: rows that each store's step dropped because they arrived after the watermark or the table's history.
        restored: changelog records applied by restores and standbys.
        reopened: times a task was initialized again because a batch left it in doubt.
        errors: by place: ``batch`` (repeated), ``broker`` (asked again), ``state`` (a task's was set aside), ``thread``
            (the instance ends).
        last_batch_at: end of the last micro-batch, in seconds since the epoch; None before the first.
    """

    batches: Durations = _NONE
    commits: Durations = _NONE
    rebalances: Durations = _NONE
    records: Mapping[str, int] = field(default_factory=dict)
    rows_written: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    restored: int = 0
    reopened: int = 0
    errors: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(("batch", "broker", "state", "thread"), 0))
    last_batch_at: float | None = None


class Counters:
    """The counters of an instance. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals = Totals()

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
        """Count a micro-batch; ``commit_seconds`` is None if it had no commit."""
        with self._lock:
            so_far = self._totals
            self._totals = replace(
                so_far,
                batches=so_far.batches.with_one(seconds),
                commits=so_far.commits if commit_seconds is None else so_far.commits.with_one(commit_seconds),
                records=_sum(so_far.records, records),
                rows_written=so_far.rows_written + rows_written,
                skipped=_sum(so_far.skipped, skipped),
                late=_sum(so_far.late, late),
                reopened=so_far.reopened + reopened,
                errors=_sum(so_far.errors, {"batch": int(failed)}),
                last_batch_at=at,
            )

    def lost(self, records: Mapping[str, int]) -> None:
        """Count offsets of input topics whose records were deleted unread."""
        with self._lock:
            self._totals = replace(self._totals, lost=_sum(self._totals.lost, records))

    def rebalance(self, seconds: float) -> None:
        """Count a finished rebalance."""
        with self._lock:
            self._totals = replace(self._totals, rebalances=self._totals.rebalances.with_one(seconds))

    def restored(self, records: int) -> None:
        """Count changelog records."""
        with self._lock:
            self._totals = replace(self._totals, restored=self._totals.restored + records)

    def error(self, where: str) -> None:
        """Count an error; see :class:`Totals` for the places."""
        with self._lock:
            self._totals = replace(self._totals, errors=_sum(self._totals.errors, {where: 1}))

    def totals(self) -> Totals:
        """Return the counters."""
        return self._totals


def _sum(counts: Mapping[str, int], more: Mapping[str, int]) -> Mapping[str, int]:
    return MappingProxyType({**counts, **{key: counts.get(key, 0) + number for key, number in more.items()}})
