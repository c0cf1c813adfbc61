"""The demo's story, from an empty broker to the verdict.

broker, topics   a real Kafka as a child process
A starts         its Spark session, then all tasks
flights flow     and A counts them
an executor      of A is killed, if it has several: the others continue at once
B starts         joins, warms copies, takes its share
SIGKILL to A     driver, JVM and Python workers at once, in the middle of its work
B takes over     its first committed row for a task of A's appears in the result
the rest         B finishes alone and stops
the judge        a plain Spark batch over the same file
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sparkrelay.demo.board import Board, Share
from sparkrelay.demo.children import executor_among, session_members
from sparkrelay.demo.feed import Feeder
from sparkrelay.demo.flights import extract_flights
from sparkrelay.demo.reader import OutputReader
from sparkrelay.demo.stage import Stage
from sparkrelay.demo.tables import FLIGHTS_TOPIC, OUTPUTS, PARTITIONS, Table, compare, read_tables
from sparkrelay.devkafka import KAFKA_VERSION, DevKafka
from sparkrelay.devkafka.folders import make_temporary, sweep
from sparkrelay.devkafka.ports import HeldPort
from sparkrelay.devkafka.topics import create_topic
from sparkrelay.errors import SparkRelayError

if TYPE_CHECKING:
    from collections.abc import Collection

    from sparkrelay.demo.screen import Screen

_SESSION_TIMEOUT_MS: Final = 6_000
_ACCEPTABLE_LAG: Final = 100
_TASKS: Final = PARTITIONS * len(OUTPUTS)
_MASTER: Final = "local[2]"
#: Fractions of the flights not to be passed before B runs tasks, and before it has taken over.
_BEFORE_B: Final = 0.55
_BEFORE_TAKEOVER: Final = 0.85
#: Without a new row for this long, the demo stops waiting for complete tables; the judge decides.
_SILENCE_S: Final = 30.0
#: Without an event for this long, a running B without active tasks is assumed to get none.
_NO_SHARE_S: Final = 15.0


class Pacing(NamedTuple):
    """The pace of the story.

    Attributes:
        seconds: for producing all flights.
        alone_s: of work before the second instance is started.
        together_s: of undisturbed work of both instances before the kill.
    """

    seconds: float = 60.0
    alone_s: float = 5.0
    together_s: float = 8.0


QUICK: Final = Pacing(seconds=30.0, alone_s=2.0, together_s=3.0)


@dataclass(frozen=True, slots=True)
class Result:
    """The demo's measurements; field names are the keys of ``--json`` (see ``docs/demo.md``). Times in seconds."""

    records: int
    exact: bool
    lost: int
    overcounted: int
    records_per_second: float
    joined_s: float
    spark_start_s: float
    takeover_s: float
    executors: int
    executor_takeover_s: float | None
    instances: int
    session_timeout_ms: int
    kafka_version: str
    spark_version: str
    rows_written: int
    tasks_moved: int
    tasks_taken_over: int
    seconds: float
    differences: tuple[str, ...]


class Story(Stage):
    """Runs the story once, as a context manager (see ``Stage``).

    Args:
        screen: shows its progress.
        pacing: its pace.
        executors: Spark executors of each instance; 0 for the driver's own JVM.
        assignor: import path for ``task.assignor.class``, or None.
    """

    def __init__(self, screen: Screen, *, pacing: Pacing, executors: int = 0, assignor: str | None = None) -> None:
        hint = f"The tasks are assigned by {assignor}: see its rebalances above. " if assignor else ""
        super().__init__(screen, Board(acceptable_lag=_ACCEPTABLE_LAG), hint=hint)
        self._pacing = pacing
        self._executors = executors
        self._assignor = assignor
        self._data = Path()

    def run(self) -> Result:
        """Run the story.

        Raises:
            SparkRelayError: a child died, or a stage exceeded its bound; the message has the end of the child's log.
        """
        kafka = self._start_broker()
        self._feeder = feeder = self._leaving.enter_context(closing(Feeder(kafka, FLIGHTS_TOPIC)))
        self._reader = reader = self._leaving.enter_context(closing(OutputReader(kafka)))
        self._let_a_work_alone(kafka, feeder, reader)
        executor_takeover_s = round(self._lose_executor(reader), 2) if self._executors > 1 else None
        spark_start_s, joined_s, moved = self._let_b_join(kafka, feeder)
        taken_over, takeover_s = self._lose_a(reader)
        records_per_second = self._let_b_finish(feeder, reader)
        found = reader.finish()
        self.board.title = "A plain Spark batch counts the same file"
        verdict = compare(self._judge(), found)
        self.board.title = "exact" if verdict.exact else "NOT EXACT"
        self._show()
        return Result(
            **verdict._asdict(),
            records=feeder.records,
            records_per_second=round(records_per_second, 1),
            joined_s=round(joined_s, 2),
            spark_start_s=round(spark_start_s, 2),
            takeover_s=round(takeover_s, 2),
            executors=self._executors,
            executor_takeover_s=executor_takeover_s,
            instances=len(self.board.clients),
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            kafka_version=KAFKA_VERSION,
            spark_version=self.board.clients["B"].spark_version,
            rows_written=reader.rows,
            tasks_moved=moved,
            tasks_taken_over=taken_over,
            seconds=round(time.monotonic() - self._began_at, 1),
        )

    def _start_broker(self) -> str:
        self.board.title = f"starting Apache Kafka {KAFKA_VERSION}"
        self._show()
        sweep()
        self._data = make_temporary()
        self._leaving.callback(shutil.rmtree, self._data, ignore_errors=True)
        self._kafka = self._leaving.enter_context(DevKafka(log_dir=self.logs))
        address = self._kafka.bootstrap_servers
        # Flights of 2013 are older than any retention time.
        for topic in (FLIGHTS_TOPIC, *(output.topic for output in OUTPUTS)):
            create_topic(address, topic, partitions=PARTITIONS, config={"retention.ms": "-1"})
        self.board.note(f"Kafka {KAFKA_VERSION} answers at {address}")
        return address

    def _start_instance(self, name: str, kafka: str) -> float:
        """Start an instance; return when its Spark session was up, seconds since 1970."""
        self.board.title = f"starting instance {name}"
        client = self.board.add(name)
        page = self._leaving.enter_context(HeldPort()).number
        master = f"local-cluster[{self._executors},1,1024]" if self._executors else _MASTER
        options = {
            "name": name,
            # The folder where the demo was started may hold the user's own assignor.
            "path": [str(Path.cwd())],
            "spark": {"spark.master": master, "spark.ui.enabled": "false"},
            "config": {
                "application.id": "flight-delays",
                "bootstrap.servers": kafka,
                "state.dir": str(self._data / f"state-{name}"),
                "num.standby.replicas": 1,
                "metrics.port": page,
                "session.timeout.ms": _SESSION_TIMEOUT_MS,
                # Both instances and the broker share one machine: four batches a second leave B room to start.
                "commit.interval.ms": 250,
                # Small figures for a story of a minute: a real application warms gigabytes, not kilobytes.
                "acceptable.recovery.lag": _ACCEPTABLE_LAG,
                "max.warmup.replicas": _TASKS,
                "follow.up.min.interval.ms": 1_000,
                "probing.rebalance.interval.ms": 60_000,
                **({"task.assignor.class": self._assignor} if self._assignor else {}),
            },
        }
        pid = self._start_child(name, "sparkrelay.demo.instance", options).pid
        self.board.note(f"{name} starts: a PySpark application in its own process, pid {pid}")
        self.board.note(f"http://127.0.0.1:{page}/ shows the group, as {name} sees it")
        self._until(f"{name}'s Spark session is up", lambda: client.spark_at > 0)
        return client.spark_at

    def _let_a_work_alone(self, kafka: str, feeder: Feeder, reader: OutputReader) -> None:
        self._start_instance("A", kafka)
        self._until("A runs every task", lambda: len(self._active("A")) == _TASKS)
        self.board.title = "A works alone"
        feeder.begin(seconds=self._pacing.seconds, limit=_BEFORE_B)
        self.board.note(f"{feeder.records:,} flights of 2013 begin to flow into topic {FLIGHTS_TOPIC!r}")
        self._until("A's first row is in the result", lambda: reader.rows > 0)
        alone_until = time.monotonic() + self._pacing.alone_s
        self._until("A has worked alone", lambda: time.monotonic() >= alone_until)

    def _lose_executor(self, reader: OutputReader) -> float:
        """Kill an executor of A; return the seconds until one of its tasks continues."""
        a, board = self.board.clients["A"], self.board
        board.title = "A's executors share the work"
        self._until("A's executors have tasks, and copies of each other's", self._executors_are_covered)
        victim = min(a.executors)
        lost = [task for task, (share, _) in a.executors[victim].items() if share is Share.ACTIVE]
        pid = executor_among(session_members(self._children["A"].pid), victim)
        if pid is None:
            raise SparkRelayError(f"The JVM of A's executor {victim} was not found; --executors needs Linux's /proc.")
        board.title = f"A's executor {victim} is dead; the others have copies of its tasks"
        killed_at = time.time()
        os.kill(pid, signal.SIGKILL)
        board.note(f"SIGKILL to executor {victim} of A. It ran {', '.join(sorted(lost))}; no session timeout applies")
        return self._until_first_row(reader, lost, f"executor {victim}", killed_at)

    def _executors_are_covered(self) -> bool:
        executors = self.board.clients["A"].executors.values()
        copied = {task for tasks in executors for task, (share, _) in tasks.items() if share is Share.STANDBY}
        working = [tasks for tasks in executors if any(share is Share.ACTIVE for share, _ in tasks.values())]
        return self._executors <= len(executors) == len(working) and len(copied) == _TASKS

    def _let_b_join(self, kafka: str, feeder: Feeder) -> tuple[float, float, int]:
        """Start B; return the seconds to its Spark session, those from there to its share, and its active tasks.

        These may be 0: an assignor need not move any.
        """
        board, began_at = self.board, time.time()
        spark_at = self._start_instance("B", kafka)
        board.title = "B joins, warms copies, and takes its share"
        self._until(
            "B owns active tasks, or is at rest without any", lambda: bool(self._active("B")) or self._has_no_share("B")
        )
        joined_s, moved = time.time() - spark_at, len(self._active("B"))
        if moved:
            board.note(f"B owns active tasks {joined_s:.1f} s after its Spark session was up")
        else:
            copies = len(board.clients["B"].having(Share.STANDBY))
            board.note(f"the assignor gives B no active task (warm copies: {copies}); A is killed all the same")
        feeder.lift(_BEFORE_TAKEOVER)
        board.title = "A and B share the work" if moved else "A works, B stands by"
        self._until("A has active tasks, and no rebalance is under way", self._steady)
        return spark_at - began_at, joined_s, moved

    def _active(self, name: str) -> frozenset[str]:
        return self.board.clients[name].having(Share.ACTIVE)

    def _steady(self) -> bool:
        """Return whether every owner of tasks works, and nothing else has happened for a while.

        An instance that dies during a rebalance is only missed after its end, and then its session timeout.
        """
        board = self.board
        return (
            board.elapsed - board.changed_at > self._pacing.together_s
            and bool(self._active("A"))
            and all(
                client.phase == "running" and (client.batches > 0 or not client.having(Share.ACTIVE))
                for client in board.clients.values()
            )
        )

    def _has_no_share(self, name: str) -> bool:
        """Return whether an instance is at rest without active tasks."""
        board, client = self.board, self.board.clients[name]
        return (
            board.elapsed - board.changed_at > _NO_SHARE_S
            and client.phase == "running"
            and not client.having(Share.ACTIVE, Share.RESTORING, Share.WARMING)
        )

    def _lose_a(self, reader: OutputReader) -> tuple[int, float]:
        """Kill A in the middle of its work; return its number of tasks, and the seconds until one of them continues."""
        self.board.title = "A is dead; the group waits for its heartbeat"
        lost = self.board.clients["A"].having(Share.ACTIVE, Share.RESTORING)
        self._children["A"].may_end = True
        killed_at = time.time()
        self._children["A"].kill()
        self.board.end("A", "killed")
        self.board.note(
            f"SIGKILL to A (driver, {'JVMs' if self._executors else 'JVM'}, Python workers). It ran "
            f"{', '.join(sorted(lost))}; the group will miss it in {_SESSION_TIMEOUT_MS // 1000} s"
        )
        return len(lost), self._until_first_row(reader, lost, "A", killed_at)

    def _until_first_row(self, reader: OutputReader, tasks: Collection[str], dead: str, killed_at: float) -> float:
        """Wait for the first row of a new owner for one of these tasks; return the seconds since the kill."""
        reader.watch(tasks)
        self._until(f"the first row for a task of {dead}", lambda: reader.first_row is not None)
        first = reader.first_row
        assert first is not None
        seconds = first.seen_at - killed_at
        self.board.note(f"first new row for a task of {dead}: {first.task}, {'/'.join(first.row)}, {seconds:.1f} s on")
        return seconds

    def _let_b_finish(self, feeder: Feeder, reader: OutputReader) -> float:
        """Let B count the rest and stop it, also if no row arrives any more; return flights per second overall."""
        last, moved_at = -1, time.monotonic()

        def at_rest() -> bool:
            nonlocal last, moved_at
            if reader.rows != last or not feeder.done:
                last, moved_at = reader.rows, time.monotonic()
            complete = feeder.done and all(n == feeder.counted for n in reader.counted.values())
            return complete or time.monotonic() - moved_at > _SILENCE_S

        feeder.lift(1.0)
        self.board.title = "B works alone"
        self._until("B has counted the rest", at_rest)
        records_per_second = feeder.records / (time.time() - feeder.began_at)
        self.board.note("every flight is in the result; stopping B in an orderly way")
        self.board.title = "B stops"
        self._children["B"].terminate()
        self._await_end("B", "B stops")
        self.board.end("B", "stopped")
        return records_per_second

    def _judge(self) -> dict[str, Table]:
        out = self._data / "batch.json"
        options = {"csv": str(extract_flights(self._data)), "out": str(out), "master": _MASTER}
        self._start_child("batch", "sparkrelay.demo.batch", options)
        self._await_end("batch", "the plain batch is done")
        return read_tables(out.read_text())
