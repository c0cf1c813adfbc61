"""A model of a pipeline with two repartition topics in a row and windows after them, on brokers that are slow.

Orders are written again by customer, then by country, then counted in windows: tasks 0_n, 1_n and 2_n. Tasks, looks at
the writers upstream, and batch threads are the product's own; brokers, the group and what a micro-batch does with rows
are modelled. A transaction is decided at one moment, and shows in each partition that it wrote, and in the group's
offsets, at another; the next one of its task, which may be another producer's, need not wait for that. Between any two
requests of a thread, other threads may work.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import SimpleNamespace

from tests.doubles.tasks import task_of

from sparkrelay.client.admin import EARLIEST
from sparkrelay.client.group_requests import OffsetAndMetadata
from sparkrelay.client.new_records import News
from sparkrelay.config import StreamsConfig
from sparkrelay.errors import ProducerFencedException, TimeoutException
from sparkrelay.runtime.batch.batch_thread import BatchThread
from sparkrelay.runtime.batch.failing_records import FailingRecords
from sparkrelay.runtime.batch.micro_batch import BatchOutcome
from sparkrelay.runtime.batch.progress import ProgressLog
from sparkrelay.runtime.batch.upstream import Upstream
from sparkrelay.runtime.contract.commands import LegReport, StateReport
from sparkrelay.runtime.tasks.in_service import InService
from sparkrelay.runtime.topics.writers import Writers
from sparkrelay.state.window_keys import LATEST, NO_TIME
from sparkrelay.types import TaskId, TopicPartition

__all__ = ["LateRowError", "Model"]

ORDERS, CUSTOMERS, COUNTRIES = TOPICS = ("orders", "by-customer", "by-country")
WIDTH = 2
IDLE_SECONDS = 60.0


class LateRowError(AssertionError):
    """A row was judged late."""


def inputs_of(subtopology):
    return [(TopicPartition(TOPICS[subtopology], number),) for number in range(WIDTH)]


TIMED = frozenset([CUSTOMERS, COUNTRIES])


def writers(timed):
    """Return the writers of the repartition topics, of which some carry event times."""
    orders = frozenset(p for some in inputs_of(0) for p in some)
    found = {
        CUSTOMERS: Writers(tuple(inputs_of(0))),
        COUNTRIES: Writers(tuple(inputs_of(1)), {CUSTOMERS: orders}, frozenset([CUSTOMERS]) - timed),
    }
    return {topic: found[topic] for topic in timed}


@dataclass
class Transaction:
    """One transaction, as far as it is of a task.

    Attributes:
        number: among those of its task.
        committed: None while it is open.
        unmarked: partitions it wrote whose marker is missing.
        commit: the offset, the note and the state that come with it.
        offsets_shown: whether the group's offsets have it.
    """

    task: TaskId
    number: int
    committed: bool | None = None
    unmarked: set[TopicPartition] = field(default_factory=set)
    commit: tuple[int, str] | None = None
    offsets_shown: bool = False

    @property
    def finished(self):
        return self.committed is not None and not self.unmarked and (self.offsets_shown or not self.committed)


class Thread:
    """A batch thread of an instance, with the clock and the brokers of the model."""

    def __init__(self, model, name):
        self.model = model
        self.in_service = InService()
        self.in_service.rest = lambda seconds: None
        self.failing = FailingRecords()
        settings = {"application.id": "app", "bootstrap.servers": "h:1", "commit.interval.ms": 0}
        self.batches = BatchThread(
            name=name,
            config=StreamsConfig.from_dict({**settings, "max.batch.records": model.rng.randint(1, 12)}),
            in_service=self.in_service,
            batches=self,
            plans=None,
            topics=self,
            progress=ProgressLog("app").thread(),
        )
        self.batches._upstream = Upstream(self, clock=model.monotonic)
        self.in_service.writers = writers(model.timed)
        self.busy = False

    @property
    def tasks(self):
        return self.in_service._tasks

    def turn(self):
        if self.tasks:
            self.batches._turn()

    # -- the topics that the batch thread asks -----------------------------------------------------------------------

    def commits(self, partitions, *, stable=False):
        self.model.between_requests(self)
        return {p: self.model.group[p] for p in partitions if p in self.model.group}

    def offsets(self, wanted, *, timeout=None, read_committed=True):
        self.model.between_requests(self)
        return {
            p: 0 if which == EARLIEST else self.model.end(p, read_committed=read_committed)
            for p, which in wanted.items()
        }

    def end_offsets(self, partitions, *, timeout=None):
        return self.offsets(dict.fromkeys(partitions, LATEST))

    def await_records(self, positions, *, timeout, over):
        self.model.between_requests(self)
        ends = {p: self.model.end(p) for p in positions}
        return News({} if over() else {p: end for p, end in ends.items() if end > positions[p]})

    def source_partitions(self):
        return {ORDERS: WIDTH}

    def retention_ms(self, topic):
        return None

    def wakeup(self):
        """Nobody waits in the model."""

    # -- the runner of its batches -----------------------------------------------------------------------------------

    def rest(self):
        """Nothing stays in the model."""

    close = rest

    def run(self, plans, work, partitions, sources):
        outcome = BatchOutcome()
        for task, ranges in work.values():
            task.batch_begun(ranges)
        self.model.between_requests(self)
        for task, _ in work.values():
            self.model.run(task, outcome)
        return outcome


class Model:
    """Everything; `step` does one thing of many."""

    def __init__(self, seed, *, threads=3, backlog=30, idle=False, timed=TIMED):
        self.rng = random.Random(seed)
        self.timed = timed
        #: In how many partitions there are customers: the tasks of the others have nothing to say.
        self.customers = self.rng.randint(1, WIDTH)
        self.idle_seconds = IDLE_SECONDS if idle else 0.0
        self.seconds = 1_000.0
        self.logs = {TopicPartition(topic, n): [] for topic in TOPICS for n in range(WIDTH)}
        self.group: dict[TopicPartition, OffsetAndMetadata] = {}
        #: The last one of each task, and those before it that do not show everywhere yet.
        self.transactions: dict[TaskId, Transaction] = {}
        self.unfinished: list[Transaction] = []
        #: Of each task, the last transaction whose offsets the group shows.
        self.shown: dict[TaskId, int] = {}
        self.watermarks: dict[TaskId, int] = {}
        self.newest: dict[TaskId, int] = {}
        self.history: list[str] = []
        self.depth = 0
        #: True once nothing fails or comes any more.
        self.calm = False
        for n in range(WIDTH):
            times = sorted(self.rng.sample(range(1_000_000), backlog))
            self.logs[TopicPartition(ORDERS, n)] = [(self.row(time), None) for time in times]
        self.threads = [Thread(self, f"thread-{n}") for n in range(threads)]
        self.out_of_service = [TaskId(part, n) for part in range(3) for n in range(WIDTH)]

    # -- time ----------------------------------------------------------------------------------------------------------

    def monotonic(self):
        return self.seconds

    @property
    def time_module(self):
        return SimpleNamespace(monotonic=self.monotonic, time=self.monotonic, perf_counter=self.monotonic)

    # -- logs ----------------------------------------------------------------------------------------------------------

    def row(self, time):
        return time, self.rng.randrange(self.customers), self.rng.randrange(WIDTH)

    def end(self, partition, *, read_committed=True):
        log = self.logs.get(partition, ())
        if not read_committed:
            return len(log)
        open_ = (n for n, (_, txn) in enumerate(log) if txn is not None and partition in txn.unmarked)
        return next(open_, len(log))

    def order(self):
        """An order comes now."""
        partition = TopicPartition(ORDERS, self.rng.randrange(WIDTH))
        self.logs[partition].append((self.row(round(self.seconds * 1000)), None))

    def finish(self, txn, *, fully=False):
        """Have a decided transaction show in some more places, or everywhere."""
        for partition in sorted(txn.unmarked):
            if fully or self.rng.random() < 0.3:
                txn.unmarked.discard(partition)
                self.logs[partition].append((None, None))
        if txn.committed and not txn.offsets_shown and (fully or self.rng.random() < 0.3):
            self.show_offsets(txn)

    def show_offsets(self, txn):
        txn.offsets_shown = True
        if txn.number > self.shown.get(txn.task, 0):
            self.shown[txn.task] = txn.number
            partition = inputs_of(txn.task.subtopology)[txn.task.partition][0]
            self.group[partition] = OffsetAndMetadata(*txn.commit)

    def between_requests(self, thread):
        for txn in [*self.unfinished, *self.transactions.values()]:
            if txn.committed is not None:
                self.finish(txn)
        self.unfinished = [txn for txn in self.unfinished if not txn.finished]
        if self.depth < 2 and self.rng.random() < 0.2:
            others = [one for one in self.threads if one is not thread and not one.busy]
            if others:
                self.turn(self.rng.choice(others))
        if not self.calm and self.rng.random() < 0.05:
            self.order()

    def turn(self, thread):
        thread.busy, self.depth = True, self.depth + 1
        try:
            thread.turn()
        finally:
            thread.busy, self.depth = False, self.depth - 1

    # -- micro-batches -------------------------------------------------------------------------------------------------

    def run(self, task, outcome):
        """Do what a micro-batch does for a task, and end its transaction one way or another."""
        txn = self.transactions[task.id]
        (partition,) = task.inputs
        start, stop = task.attempt.ranges.get(partition, (0, 0))
        rows = [row for row, by in self.logs[partition][start:stop] if row is not None and (by is None or by.committed)]
        newest, state, late = {}, (), []
        if task.id.subtopology < 2:
            target = TOPICS[task.id.subtopology + 1]
            for row in rows:
                out = TopicPartition(target, row[task.id.subtopology + 1])
                txn.unmarked.add(out)
                self.logs[out].append((row, txn))
            if rows:
                newest = {target: max(time for time, *_ in rows)} if target in self.timed else {}
        else:
            before = self.watermarks.get(task.id, NO_TIME)
            late = [time for time, *_ in rows if time < before]
            limit = task.attempt.limits.get(COUNTRIES, LATEST)
            held = max([self.newest.get(task.id, NO_TIME), *(time for time, *_ in rows)])
            after = max(before, min(held, limit))
            if task.attempt.silence_ms and after > NO_TIME:
                after += task.attempt.silence_ms
            state = (StateReport("windows", len(rows), left_ms=0 if held > after else 500, watermark=after),)
        report = LegReport("leg", task.id, task.position.batch, newest_out=newest, state=state[0] if state else None)
        fate = 1.0 if self.calm else self.rng.random()
        notes = task.commit_notes([report])
        if fate < 0.08:
            # The coordinator has ended it for its age, or somebody has taken a new epoch by force.
            txn.committed = False
            outcome.reinitialize[task.id] = ProducerFencedException("INVALID_PRODUCER_EPOCH")
            return
        txn.committed, txn.commit = True, (stop, notes.get(partition, ""))
        if task.id.subtopology == 2:
            self.watermarks[task.id], self.newest[task.id] = after, held
            if late:
                raise LateRowError(f"{task.id}: {late} at watermark {before}")
        if fate < 0.16:
            outcome.reinitialize[task.id] = TimeoutException("the answer was lost")
            return
        if self.rng.random() < 0.5:
            # The next transaction of the same producer begins only once this one is everywhere.
            self.finish(txn, fully=True)
        self._next(task.id)
        task.batch_committed(state)
        outcome.committed.append(task.id)

    def _next(self, id_):
        last = self.transactions.get(id_)
        if last is not None and not last.finished:
            self.unfinished.append(last)
        self.transactions[id_] = Transaction(id_, 1 if last is None else last.number + 1)

    # -- the group's threads -------------------------------------------------------------------------------------------

    def initialize(self, thread, task):
        """Have what was begun of a task decided, and take it into service where the group's offsets are."""
        id_ = task.id
        if (txn := self.transactions.get(id_)) is not None and txn.committed is None:
            txn.committed = False
        for txn in [*self.unfinished, *self.transactions.values()]:
            # Offsets are waited for, and other partitions are not.
            if txn.task == id_ and txn.committed and not txn.offsets_shown:
                self.show_offsets(txn)
        self._next(id_)
        ends = dict.fromkeys(task.changelogs.values(), 0)
        task.initialized(1, ends, {})
        task.restore_begun()
        commits = {p: self.group[p] for p in task.inputs if p in self.group}
        task.positioned({p: commits[p].offset if p in commits else 0 for p in task.inputs}, {}, None)
        task.continue_event_times(commits)
        if self.rng.random() < 0.3:
            # As with auto.offset.reset=latest, or where a table reuses its topic as changelog.
            for partition, offset in task.position.offsets.items():
                self.group[partition] = OffsetAndMetadata(offset, task.standing_notes().get(partition, ""))
        task.restored()
        thread.in_service.put([task])

    def made(self, id_):
        last = id_.subtopology == 2
        inputs = inputs_of(id_.subtopology)[id_.partition]
        return task_of(
            id_,
            inputs,
            {"windows": TopicPartition("changelog", id_.partition)} if last else {},
            "state" if last else None,
            frozenset([COUNTRIES]) if last else frozenset(),
            width=WIDTH,
            cut=frozenset(["windows"]) if last else frozenset(),
            timed_topics=frozenset([COUNTRIES]) if last else frozenset(),
            watermark_idle_seconds=self.idle_seconds if last else 0.0,
            timed_sinks=frozenset() if last else frozenset([TOPICS[id_.subtopology + 1]]) & self.timed,
        )

    def drain(self):
        """Let everything be read, without trouble."""
        self.calm = True
        for thread in self.threads:
            for task, _ in thread.in_service.take_fallen_out():
                task.fell_out()
                self.initialize(thread, task)
        while self.out_of_service:
            self.initialize(self.rng.choice(self.threads), self.made(self.out_of_service.pop()))
        # Until everything is read, and some more for windows that wait.
        left = 2000
        while left > 0:
            left = min(left - 1, left if self.unread else 30)
            self.seconds += 0.1
            for thread in self.threads:
                self.turn(thread)

    @property
    def unread(self):
        """What no task has read, by partition."""
        stands = {p: commit.offset for p, commit in self.group.items()}
        return {p: len(log) - stands.get(p, 0) for p, log in self.logs.items() if len(log) > stands.get(p, 0)}

    def step(self):
        """One thing happens."""
        self.seconds += self.rng.random()
        what = self.rng.random()
        if what < 0.04:
            self.order()
        elif what < 0.06:
            self.seconds += self.rng.choice([5, 30, 70])
        elif what < 0.08:
            thread = self.rng.choice(self.threads)
            if thread.tasks:
                id_ = self.rng.choice(sorted(thread.tasks))
                thread.in_service.withdraw([id_], timeout=0)
                self.out_of_service.append(id_)
        elif what < 0.25 and self.out_of_service:
            id_ = self.out_of_service.pop(self.rng.randrange(len(self.out_of_service)))
            self.initialize(self.rng.choice(self.threads), self.made(id_))
        elif what < 0.4:
            for thread in self.threads:
                for task, _ in thread.in_service.take_fallen_out():
                    task.fell_out()
                    self.initialize(thread, task)
        else:
            self.turn(self.rng.choice(self.threads))
