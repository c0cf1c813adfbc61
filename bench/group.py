"""A group of instances with a big state under a steady feed: the stage on which something then happens.

Keys are loaded first, one record each, in bulk; then 2,000 records a second follow for keys that are known. What
happens is measured by a reader of the result topic, and a run counts only if the last row of every key is exact.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from bench.children import BenchError
from bench.feed import Feed
from bench.gaps import Watch
from bench.machine import load_average
from bench.member import Member
from bench.results import check_totals, last_rows
from bench.systems import STREAMS, STREAMS_EXACTLY_ONCE, STRUCTURED, System, Variant
from bench.topics import run_topics
from bench.workload import PARTITIONS, write_records
from sparkrelay.records.partition import murmur2_partitions

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.results import Totals

__all__ = ["Group", "Scale", "Show"]

SESSION_TIMEOUT_MS = 10_000
#: Kafka Streams looks at its warm-ups this often, and can be set to no less (its default is ten times that).
_SHORTEST_PROBING = {"probing.rebalance.interval.ms": 60_000}
_START_S = 180.0
_LOAD_S = 240.0
_EVENT_S = 180.0
_TICK_S = 0.02
#: A partition that is silent for longer is not quiet again; so long everything must have been in order.
_QUIET_GAP_S = 3.0
#: How much of the time before the event is looked at, too.
_BEFORE_S = 5.0


@dataclass(frozen=True, slots=True)
class Scale:
    """How much: keys of state, records a second, seconds that must be quiet, and where logs go."""

    keys: int = 1_000_000
    rate: int = 2000
    quiet_s: float = 8.0
    logs: Path | None = None


class Group:
    """Topics, instances, feed and reader of one run; use it as a context manager.

    Args:
        bootstrap_servers: the broker.
        system: whose instances.
        scale: how much there is.
        name: of the scenario.
        settings: added to each instance's settings, with Kafka Streams' names.
    """

    def __init__(
        self, bootstrap_servers: str, system: System, scale: Scale, name: str, settings: dict[str, Any] | None = None
    ) -> None:
        self._servers = bootstrap_servers
        self.system = system
        self.scale = scale
        self._name = name
        #: The default, but for few keys: half of a task's, so that a copy must still be warmed up. Much less, and a
        #: warm copy counts as cold each time its owner commits what it took a little longer for.
        self.acceptable_lag = min(10_000, scale.keys // PARTITIONS // 2)
        self._settings = {
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "acceptable.recovery.lag": self.acceptable_lag,
            **(settings or {}),
        }
        if system is STREAMS:
            self._settings |= _SHORTEST_PROBING
        self._open = contextlib.ExitStack()
        self.members: list[Member] = []
        self.before: Totals = {}
        self.load_before = load_average()

    def __enter__(self) -> Self:
        self._folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="bench-state-")))
        self.source, self.sink = self._open.enter_context(run_topics(self._servers, self._name, f"{self._name}-out"))
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    # -- instances -------------------------------------------------------------------------------------------------

    def folder(self, name: str) -> Path:
        """Return where an instance keeps its state."""
        return self._folder / name

    def start(
        self, name: str, *, cores: int = 1, executors: int = 0, folder: str | None = None, **orders: Any
    ) -> Member:
        """Start an instance; returns at once.

        Args:
            name: of its log.
            cores: how many it uses: Spark's cores, or Kafka Streams' threads.
            executors: it runs on a cluster with so many of one core each, instead.
            folder: whose state it has, if not its own.
            orders: added to its argument.
        """
        variant = STREAMS_EXACTLY_ONCE if self.system is STREAMS else Variant(self.system)
        made = variant.orders(
            bootstrap_servers=self._servers,
            source=self.source,
            sink=self.sink,
            folder=self.folder(folder or name),
            look_s=0.05,
        )
        if "spark" in made:
            master = f"local-cluster[{executors},1,1024]" if executors else f"local[{cores}]"
            made["spark"]["spark.master"] = master
        if "config" in made:
            made["config"] |= self._settings
        if self.system is STREAMS:
            made["config"]["num.stream.threads"] = cores
        label = f"{self._name}-{self.system.name.replace(' ', '')}-{name}"
        member = self._open.enter_context(
            Member(label, self.system, {**made, "tasks": True, **orders}, self.scale.logs)
        )
        self.members.append(member)
        return member

    def wait(self, what: str, condition: Callable[[], bool], timeout: float = _EVENT_S) -> float:
        """Wait until a condition holds; returns seconds.

        Raises:
            BenchError: it did not in time, or an instance failed.
        """
        began = time.monotonic()
        while True:
            for member in self.members:
                member.look()
            if condition():
                return time.monotonic() - began
            if time.monotonic() - began > timeout:
                places = {member.name: member.places for member in self.members}
                raise BenchError(f"{self._name}, {self.system.name}: not within {timeout:g} s: {what}; {places}")
            time.sleep(_TICK_S)

    def places(self) -> list[dict[str, Any]]:
        """Return what each place of each instance has."""
        return [place for member in self.members for place in member.places.values()]

    def whole(self) -> bool:
        """Return whether every task is in service somewhere."""
        return {partition for place in self.places() for partition in place["active"]} == set(range(PARTITIONS))

    def shared(self, places: int, *, standbys: int = 0, lag: int | None = None) -> bool:
        """Return whether so many places have equally many tasks each, and copies that lag at most so much."""
        held = [place for place in self.places() if place["active"]]
        copies = [place["standby"] for place in self.places()]
        return (
            self.whole()
            and len(held) == places
            and all(len(place["active"]) == PARTITIONS // places for place in held)
            and sum(map(len, copies)) >= PARTITIONS * standbys
            and (lag is None or all(left is not None and left <= lag for copy in copies for left in copy.values()))
        )

    def wait_shared(self, places: int, *, standbys: int = 0) -> None:
        """Wait until the tasks are shared, and everybody is at rest."""
        self.wait(
            "tasks shared",
            lambda: all(member.live for member in self.members) and self.shared(places, standbys=standbys),
            _START_S,
        )

    # -- work ------------------------------------------------------------------------------------------------------

    def load(self, *, standbys: int = 0, places: int = 1) -> None:
        """Write a record for each key, and wait until all of them are in the state, and in the copies."""
        keys = self.scale.keys
        users = pa.array([f"u{number:06d}" for number in range(keys)])
        quarters = np.arange(keys) % 400 + 1
        homes = murmur2_partitions(users, PARTITIONS)
        parts = []
        for partition in range(PARTITIONS):
            at = np.flatnonzero(homes == partition)
            parts.append((users.take(pa.array(at)), quarters[at], np.zeros(len(at), np.int64)))
        write_records(self._servers, self.source, parts)
        self.before = dict(zip(users.to_pylist(), ((1, quarter / 4) for quarter in quarters.tolist()), strict=True))

        def loaded() -> bool:
            taken: int = sum(batch["rows"] for member in self.members for batch in member.batches)
            return taken >= keys

        self.wait("all keys are in the state", loaded, _LOAD_S)
        if self.system is not STRUCTURED:
            self.wait("copies are warm", lambda: self.shared(places, standbys=standbys, lag=1000), _LOAD_S)

    @contextlib.contextmanager
    def feeding(self) -> Any:
        """Feed and read while the context is open; yields an :class:`Show`."""
        feed = Feed(self._servers, self.source, rate=self.scale.rate, keys=self.scale.keys, before=self.before)
        with Watch(self._servers, self.sink, feed) as watch, feed:
            yield Show(self, feed, watch)

    def stop(self) -> None:
        """Stop who is left."""
        for member in self.members:
            if not member.over:
                member.stop()

    def check(self, expected: Totals) -> None:
        """Compare the result topic with what must be in it.

        Raises:
            BenchError: it is not exact.
        """
        rows, _ = last_rows(self._servers, self.sink)
        check_totals(f"{self._name}, {self.system.name}", expected, rows)


class Show:
    """A feed under way, its reader, and the event in between."""

    def __init__(self, group: Group, feed: Feed, watch: Watch) -> None:
        self._group = group
        self.feed = feed
        self.watch = watch
        self.event_at = 0.0
        self._marked = 0

    def wait_quiet(self) -> None:
        """Wait until every partition has had its output without a long pause for a while."""
        span = self._group.scale.quiet_s
        since = time.perf_counter()

        def quiet() -> bool:
            self.watch.check()
            now = time.perf_counter()
            return now - since >= span and max(self.watch.gaps(now - span, now).values()) < _QUIET_GAP_S

        self._group.wait("outputs flow again", quiet)

    def begin_measuring(self) -> None:
        """Wait until the feed flows, and remember from now on how long each record takes."""
        self.wait_quiet()
        self.feed.remember()
        self._marked = len(self.watch.waits)
        time.sleep(_BEFORE_S)

    def event(self) -> float:
        """Note that the event is now; returns seconds since 1970."""
        self.event_at = time.perf_counter()
        return time.time()

    def figures(self, lost: set[int]) -> dict[str, Any]:
        """Return the longest silences from a little before the event until now.

        Args:
            lost: partitions of the tasks that are concerned most.
        """
        now = time.perf_counter()
        gaps = self.watch.gaps(self.event_at - _BEFORE_S, now)
        calm = self.watch.gaps(self.event_at - _BEFORE_S, self.event_at)
        waits = np.array([wait for at, wait in list(self.watch.waits) if at >= self.event_at]) * 1000
        p50, p99, worst = (round(float(value)) for value in np.percentile(waits, (50, 99, 100)))
        return {
            "gap_s": round(max(gaps[partition] for partition in lost), 3),
            "other_gap_s": round(max((gap for p, gap in gaps.items() if p not in lost), default=0.0), 3),
            "gap_before_s": round(max(calm.values()), 3),
            "gaps_s": {str(partition): round(gap, 3) for partition, gap in gaps.items()},
            "p50_ms": p50,
            "p99_ms": p99,
            "max_ms": worst,
            "window_s": round(now - self.event_at, 1),
        }

    def finish(self) -> dict[str, Any]:
        """End the feed, wait for its last record, stop everybody, check the result; returns what is reported of that.

        Raises:
            BenchError: a record has no effect, or the result is not exact.
        """
        self.feed.stop()
        self._group.wait("every record has had its effect", lambda: not any(self.feed.unseen.values()))
        self._group.stop()
        self._group.check(self.feed.totals())
        if self.watch.repeats and self._group.system is not STRUCTURED:
            raise BenchError(f"{self.watch.repeats} rows say no more than an earlier row of their user")
        return {"repeated_rows": self.watch.repeats, "exact": True, "load_average_before": self._group.load_before}
