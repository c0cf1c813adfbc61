"""Instances as real processes that can be killed, and a ledger that knows what every output must say."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter, defaultdict
from pathlib import Path

import pytest

PARTITIONS = 2
SESSION_TIMEOUT_MS = 3000


def signal_session(session, number):
    """Signal every process of a session: Spark's Python workers have a process group of their own."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(int(entry.name)) == session:
                    os.kill(int(entry.name), number)


def members_of(session):
    """Return the processes of a session: pid -> command line."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(ProcessLookupError, PermissionError, FileNotFoundError):
                if os.getsid(int(entry.name)) == session:
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().decode().split("\0")
    return found


class Instance:
    """A child process with a Spark session of its own; it joins the group when it is told to."""

    def __init__(self, folder, name, settings, faults, environment=None):
        self.log = folder / f"{name}.log"
        self.name = name
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("instance.py")), json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                text=True,
                env={**os.environ, **(environment or {}), "SPARKRELAY_FAULTS": str(faults)},
            )
        self._ready = False

    def tell(self, word):
        """Send a word and return the answer; '' if the process died over it."""
        if not self._ready:
            assert self.process.stdout.readline().strip() == "ready", self.tail()
            self._ready = True
        try:
            self.process.stdin.write(word + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return ""
        return self.process.stdout.readline().strip()

    def start(self):
        answer = self.tell("start")
        assert answer == "started", f"{answer}\n{self.tail()}"
        return self

    def tasks(self):
        return json.loads(self.tell("tasks"))

    def processes(self):
        """Return process id -> active and standby tasks."""
        return json.loads(self.tell("processes"))

    def members(self):
        """Return every process of the instance: pid -> command line."""
        return members_of(self.process.pid)

    def executors(self):
        """Return the JVMs of its executors: executor id -> pid."""
        found = {}
        for pid, command in self.members().items():
            if "--executor-id" in command and "java" in command[0]:
                found[command[command.index("--executor-id") + 1]] = pid
        return found

    def stop(self):
        answer = self.tell("stop")
        self.process.wait(120)
        return answer

    def kill(self, *, only_driver=False):
        """SIGKILL the whole instance, or its driver alone: JVM and workers then notice for themselves."""
        if only_driver:
            self.process.kill()
        else:
            signal_session(self.process.pid, signal.SIGKILL)
        self.process.wait(120)

    def signal(self, number):
        """Send a signal to every process of the instance, such as SIGSTOP and SIGCONT."""
        signal_session(self.process.pid, number)

    def wait_for_death(self, why):
        try:
            code = self.process.wait(120)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not die {why}\n{self.tail()}") from None
        assert code == -signal.SIGKILL, f"{self.name} ended with {code} {why}\n{self.tail()}"

    @property
    def alive(self):
        return self.process.poll() is None

    def tail(self):
        lines = self.log.read_text(errors="replace").splitlines()
        return f"--- {self.log}\n" + "\n".join(lines[-60:])

    def close(self):
        signal_session(self.process.pid, signal.SIGKILL)
        self.process.wait(120)
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()


class Fleet:
    """Starts instances of one application; keeps a spare whose Spark session is up, so that restarts are quick."""

    def __init__(self, kafka, folder, ledger, *, one_state_dir=True, master="local[2]", environment=None, **config):
        self._master = master
        self._environment = environment
        self._folder = folder
        self._number = 0
        self._one_state_dir = one_state_dir
        self._config = {
            "application.id": f"chaos-{uuid.uuid4().hex[:8]}",
            "bootstrap.servers": kafka.bootstrap_servers,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 300,
            "max.batch.records": 40,
            "transaction.timeout.ms": 30_000,
            **config,
        }
        self._ledger = ledger
        self._faults = folder / "faults"
        self._instances = []
        self._spare = None
        self.running = None
        self.crew = ()

    @property
    def application_id(self):
        return self._config["application.id"]

    def prepare(self):
        """Launch the next instance's process; it brings Spark up and waits."""
        if self._spare is None:
            self._number += 1
            state = self._folder / ("state" if self._one_state_dir else f"state-{self._number}")
            config = {**self._config, "state.dir": str(state)}
            settings = {"topics": self._ledger.topics, "config": config, "master": self._master}
            self._spare = Instance(self._folder, f"instance-{self._number}", settings, self._faults, self._environment)
            self._instances.append(self._spare)

    def start(self, *, spare=True):
        """Start the prepared instance and, unless told otherwise, prepare another."""
        self.running = self.take_spare().start()
        if spare:
            self.prepare()
        return self.running

    def launch_and_die(self, why):
        """Start the prepared instance, which an armed fault kills while it opens its tasks."""
        doomed = self.take_spare()
        doomed.tell("start")
        doomed.wait_for_death(why)
        self.prepare()

    def take_spare(self):
        """Return the prepared instance, whose process is up, to be started by whoever took it."""
        self.prepare()
        taken, self._spare = self._spare, None
        return taken

    def wait_for_one_death(self, instances, timeout_s=120):
        deadline = time.monotonic() + timeout_s
        while all(instance.alive for instance in instances):
            assert time.monotonic() < deadline, f"nobody died\n{self.tail()}"
            time.sleep(0.05)

    def ensure_running(self):
        if self.running is None or not self.running.alive:
            self.start()
        return self.running

    def arm(self, point, count, whom):
        """Let whoever reaches the point for the count-th time from now on kill the instance or itself."""
        armed = self._faults.with_suffix(".new")
        armed.write_text(f"{uuid.uuid4().hex} {point} {count} {whom}")
        armed.rename(self._faults)

    def die_in_a_batch(self, point, count, ledger):
        """Have an instance die at the point, and its successor take up what it left."""
        doomed = self.ensure_running()
        ledger.settle(self)
        self.arm(point, count, "instance")
        ledger.write(240)
        doomed.wait_for_death(f"at {point}")
        self.disarm()
        self.start()
        ledger.settle(self)

    def lose_a_worker(self, point, ledger):
        """Have a Python worker die at the point, which its instance survives."""
        instance = self.ensure_running()
        ledger.settle(self)
        self.arm(point, 3, "worker")
        ledger.write(240)
        ledger.settle(self)
        assert self.struck
        self.disarm()
        assert instance.alive
        assert instance.tasks()["state"] == "RUNNING", instance.tail()

    def disarm(self):
        self._faults.unlink(missing_ok=True)

    @property
    def struck(self):
        """True once the armed point was reached as often as asked."""
        id_, _, count, _ = self._faults.read_text().split()
        reached = Path(f"{self._faults}.{id_}")
        return reached.exists() and reached.stat().st_size >= int(count)

    def forget_state(self):
        shutil.rmtree(self._folder / "state", ignore_errors=True)

    def tail(self):
        return "\n".join(instance.tail() for instance in self._instances[-3:])

    def close(self):
        """End everything; of an instance that has ended nothing may be left, whoever was killed."""
        deadline = time.monotonic() + 60
        ended = [instance for instance in self._instances if not instance.alive]
        while (left := {one.name: one.members() for one in ended if one.members()}) and time.monotonic() < deadline:
            time.sleep(0.2)
        for instance in self._instances:
            instance.close()
        assert not left, f"these outlived their instance: {left}"


class Ledger:
    """Writes orders, recomputes in plain Python what each output must say, and reads them all, read_committed.

    A user's and a shop's orders come from one partition, so their order is known: of every update `n` it is known what
    its total must be, not only of the last one.
    """

    def __init__(self, kafka, make_topic, seed):
        from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

        self.topics = {
            "orders": make_topic("orders", PARTITIONS),
            "users": make_topic("users", 2),
            "shops": make_topic("shops", 2),
            "marks": make_topic("marks", 2),
        }
        self._random = random.Random(seed)
        self._id = 0
        self._totals = {"users": defaultdict(lambda: [0]), "shops": defaultdict(lambda: [0])}
        self._marks = Counter()
        self._seen = {"users": {}, "shops": {}}
        self._seen_marks = Counter()
        self.updates = 0
        servers = {"bootstrap.servers": kafka.bootstrap_servers}
        self._producer = Producer({**servers, "enable.idempotence": True, "linger.ms": 1})
        self._servers = servers
        self._names = {name: hint for hint, name in self.topics.items()}
        self._outputs = [
            TopicPartition(self.topics[hint], p, OFFSET_BEGINNING)
            for hint in ("users", "shops", "marks")
            for p in (0, 1)
        ]
        self._make_reader = lambda: Consumer(
            {
                **servers,
                "group.id": "ledger",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
            }
        )
        self._reader = self._make_reader()
        self._reader.assign(self._outputs)

    def write(self, orders):
        """Produce that many orders and note what they change."""
        for _ in range(orders):
            self._id += 1
            partition = self._random.randrange(PARTITIONS)
            user, shop = (f"{kind}{partition}-{self._random.randrange(9)}" for kind in ("user", "shop"))
            amount = self._random.randrange(-50, 200)
            value = json.dumps({"id": self._id, "shop": shop, "amount": amount})
            # Noted first: another thread may be reading what becomes of it.
            for totals in (self._totals["users"][user], self._totals["shops"][shop]):
                totals.append(totals[-1] + amount)
            if amount % 7 == 0:
                self._marks[self._id, "seven"] += 1
            if amount % 11 == 0:
                self._marks[self._id, "eleven"] += 1
            self._producer.produce(self.topics["orders"], value, user, partition=partition)
        assert self._producer.flush(30) == 0

    @property
    def backlog(self):
        """Orders whose user's update was not seen yet."""
        seen = self._seen["users"]
        return sum(len(totals) - 1 - seen.get(user, 0) for user, totals in self._totals["users"].items())

    def read(self, seconds=0.05):
        """Read what is there and check each update against the one before it."""
        for message in self._reader.consume(1000, seconds):
            error = message.error()
            # That the broker is away is for the test to know.
            assert error is None or error.name() in {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT"}, error
            if error is None:
                self._check(self._names[message.topic()], message)

    def read_until(self, condition, complaint, timeout_s=120):
        deadline = time.monotonic() + timeout_s
        while not condition():
            self.read()
            if time.monotonic() > deadline:
                raise AssertionError(f"{complaint()} after {timeout_s} s")

    def write_and_read_half(self, count, complaint):
        """Write orders and return in the middle of the work: half of what no output has said yet is still to come."""
        self.write(count)
        left = self.backlog // 2
        self.read_until(lambda: self.backlog <= left, complaint)

    def settle(self, fleet, timeout_s=240):
        """Wait until every output has said everything; nothing may be lost, and nothing more may come."""
        self.read_until(lambda: not self.missing(), lambda: f"missing: {self.missing()[:5]}\n{fleet.tail()}", timeout_s)

    def missing(self):
        """Return what no output has said yet."""
        found = []
        for table, groups in self._totals.items():
            for group, totals in groups.items():
                if self._seen[table].get(group, 0) != len(totals) - 1:
                    found.append(f"{table} {group}: {self._seen[table].get(group, 0)} of {len(totals) - 1}")
        found += [f"mark {mark}" for mark in self._marks - self._seen_marks]
        return found

    def read_again(self):
        """Read every output once more from its beginning, as a reader who comes late; all must be said by its end."""
        from confluent_kafka import Consumer

        self._seen = {"users": {}, "shops": {}}
        self._seen_marks.clear()
        ends = {(tp.topic, tp.partition): self._reader.get_watermark_offsets(tp, 10)[1] for tp in self._outputs}
        late = Consumer(
            {
                **self._servers,
                "group.id": "late",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        late.assign(self._outputs)
        deadline = time.monotonic() + 60
        open_ends = set(ends)
        while open_ends:
            assert time.monotonic() < deadline, f"{open_ends} did not end: is a transaction still open?"
            for message in late.consume(1000, 0.05):
                if message.error() is None:
                    self._check(self._names[message.topic()], message)
                elif message.offset() >= ends[message.topic(), message.partition()]:
                    open_ends.discard((message.topic(), message.partition()))
        late.close()
        assert not self.missing()

    def _check(self, table, message):
        self.updates += 1
        row = json.loads(message.value())
        if table == "marks":
            mark = row["id"], row["why"]
            self._seen_marks[mark] += 1
            assert self._seen_marks[mark] <= self._marks[mark], f"order {mark} came {self._seen_marks[mark]} times"
            return
        group = row[table[:-1]]
        n, before, totals = row["n"], self._seen[table].get(group, 0), self._totals[table][group]
        where = f"{message.topic()}-{message.partition()}@{message.offset()}"
        assert message.key() == group.encode(), f"{where}: key {message.key()} of {row}"
        assert n > before, f"{where}: {group} says n={n} after n={before}: an update came twice, or out of order"
        assert n < len(totals), f"{where}: {group} says n={n}, but only {len(totals) - 1} orders were written"
        assert row["total"] == totals[n], f"{where}: {group} says {row}, its first {n} orders make {totals[n]}"
        self._seen[table][group] = n

    def close(self):
        self._reader.close()


@pytest.fixture(scope="module")
def module_topic(kafka):
    """`make_topic` for a whole module."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})

    def make(hint, partitions):
        name = f"{hint}-{uuid.uuid4().hex[:8]}"
        admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1)])[name].result(30)
        return name

    return make


@pytest.fixture(scope="module")
def seed():
    """The seed of everything random, printed where a test fails; set CHAOS_SEED to repeat it."""
    chosen = int(os.environ.get("CHAOS_SEED", random.SystemRandom().randrange(1 << 30)))
    sys.stderr.write(f"CHAOS_SEED={chosen}\n")
    return chosen


@pytest.fixture(scope="module")
def ledger(kafka, module_topic, seed):
    book = Ledger(kafka, module_topic, seed)
    yield book
    book.close()


@pytest.fixture(scope="module")
def fleet(kafka, ledger, tmp_path_factory):
    """Instances that share one state directory, one at a time."""
    ships = Fleet(kafka, tmp_path_factory.mktemp("fleet"), ledger)
    yield ships
    ships.close()


@pytest.fixture(scope="module")
def cluster(kafka, ledger, tmp_path_factory, spark_home):
    """One instance on a cluster of two executors with one core each, and a standby of every task: `running`."""
    ships = Fleet(
        kafka,
        tmp_path_factory.mktemp("cluster"),
        ledger,
        master="local-cluster[2,1,1024]",
        environment={"SPARK_HOME": str(spark_home)},
        **{"num.standby.replicas": 1, "session.timeout.ms": 600000, "acceptable.recovery.lag": 100},
    )
    ships.start(spare=False)
    yield ships
    ships.close()


@pytest.fixture(scope="module")
def neighbours(kafka, ledger, tmp_path_factory):
    """Two instances side by side, each with a state directory, and with a standby of every task: `crew`."""
    ships = Fleet(
        kafka,
        tmp_path_factory.mktemp("neighbours"),
        ledger,
        one_state_dir=False,
        **{"num.standby.replicas": 1, "session.timeout.ms": 6000, "acceptable.recovery.lag": 100},
    )
    ships.crew = ships.start(), ships.start(spare=False)
    yield ships
    ships.close()


@pytest.fixture(scope="module")
def crowd(kafka, ledger, tmp_path_factory):
    """Instances with a state directory each, which a successor inherits."""
    ships = Fleet(
        kafka,
        tmp_path_factory.mktemp("crowd"),
        ledger,
        one_state_dir=True,
        **{
            "num.standby.replicas": 1,
            "session.timeout.ms": 6000,
            "acceptable.recovery.lag": 1000,
            "max.batch.records": 20_000,
        },
    )
    yield ships
    ships.close()
