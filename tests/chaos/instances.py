"""Instances as real processes that can be killed, and a fleet that starts one after another."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path

from tests import evidence
from tests.short_spark import SHORT_LIVED
from tests.waiting import LONG, remove_folder, wait_until

from sparkrelay.demo.children import session_members

SESSION_TIMEOUT_MS = 3000


#: The tasks of the pipeline.
EVERYTHING = {f"{subtopology}_{partition}" for subtopology in range(4) for partition in range(2)}


def signal_session(session, number):
    """Signal every process of a session: Spark's Python workers have a process group of their own."""
    for pid in session_members(session):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def members_of(session):
    """Return the processes of a session: pid -> command line."""
    found = {}
    for pid in session_members(session):
        with contextlib.suppress(OSError):
            found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return found


class Instance:
    """A child process with a Spark session of its own; it joins the group when it is asked to."""

    def __init__(self, folder, name, settings, faults, environment=None, *, script="instance.py"):
        self.log = folder / f"{name}.log"
        self.name = name
        evidence.watch(self.log)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name(script)), json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                text=True,
                env={**os.environ, **(environment or {}), "SPARKRELAY_FAULTS": str(faults)},
            )
        self._ready = False

    def ask(self, word):
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
        answer = self.ask("start")
        assert answer == "started", f"{answer}\n{self.tail()}"
        return self

    def tasks(self):
        return json.loads(self.ask("tasks"))

    def processes(self):
        """Return process id -> active and standby tasks."""
        return json.loads(self.ask("processes"))

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

    def refusal(self):
        """Return the error that the instance ends with, at its start or later."""
        answer = self.ask("start")
        return answer if answer.startswith("failed ") else self.error()

    def error(self):
        """Return the error that the instance, which was started, ends with."""
        wait_until(lambda: self.tasks()["state"] == "ERROR", lambda: f"it does not end in ERROR\n{self.tail()}")
        return self.ask("exception")

    def stop(self):
        answer = self.ask("stop")
        self.process.wait(LONG)
        return answer

    def kill(self, *, only_driver=False):
        """SIGKILL the whole instance, or its driver alone: JVM and workers then notice for themselves."""
        if only_driver:
            self.process.kill()
        else:
            signal_session(self.process.pid, signal.SIGKILL)
        self.process.wait(LONG)

    def signal(self, number):
        """Send a signal to every process of the instance, such as SIGSTOP and SIGCONT."""
        signal_session(self.process.pid, number)

    def wait_for_death(self, why):
        try:
            code = self.process.wait(LONG)
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
        self.process.wait(LONG)
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()


class Succession:
    """Instances of a script that die one after another, each while the next one is ready to join.

    Args:
        folder: for their logs and their state.
        kafka: the broker.
        script: of the instances, beside this file.
        topics: what the script's pipeline is given.
        config: settings, beside those that each has.
    """

    def __init__(self, folder, kafka, script, topics, config=None):
        self.state = folder / "state"
        self._folder, self._script, self._faults = folder, script, folder / "faults"
        self._settings = {
            "topics": dict(topics),
            "spark": {"spark.master": "local[2]", **SHORT_LIVED},
            "ways": "in turn",
            "config": {
                "application.id": f"{script.removesuffix('.py')}-{uuid.uuid4().hex[:8]}",
                "bootstrap.servers": kafka.bootstrap_servers,
                "state.dir": str(self.state),
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 300,
                "max.batch.records": 16,
                "auto.offset.reset": "earliest",
                **(config or {}),
            },
        }
        self._made = []
        self._spare = self._prepare()

    def _prepare(self):
        name = f"instance-{len(self._made)}"
        self._made.append(Instance(self._folder, name, self._settings, self._faults, script=self._script))
        return self._made[-1]

    @property
    def application_id(self):
        return self._settings["config"]["application.id"]

    def take(self):
        """Return the next one, which is ready to join, and prepare another."""
        taken, self._spare = self._spare, self._prepare()
        return taken

    def change_topics(self, topics):
        """Replace some of the topics that the next ones' pipeline is given."""
        self._settings["topics"] |= topics
        self._spare.close()
        self._spare = self._prepare()

    def die_at(self, point, times, *, with_state=False):
        """Start the next one, and wait until it has died where it passed a point so often, perhaps with its disk."""
        self._faults.write_text(f"{self._spare.name} {point} {times} instance")
        doomed = self.take()
        doomed.ask("start")
        doomed.wait_for_death(f"at {point}, {doomed.name}")
        if with_state:
            remove_folder(self.state)

    def die_in_turn(self, points, kills, write):
        """Have so many die, at one point after the other, each after a call of `write`; every second loses its disk."""
        for kill in range(kills):
            write()
            self.die_at(points[kill % len(points)], 2 + kill % 3, with_state=kill % 2)

    def last(self):
        """Start the next one, which does not die, and return it."""
        self._faults.unlink(missing_ok=True)
        return self._spare.start()

    def close(self):
        for one in self._made:
            one.close()


class Fleet:
    """Starts instances of one application; keeps a spare whose Spark session is up, so that restarts are quick."""

    def __init__(
        self,
        kafka,
        folder,
        ledger,
        *,
        ways="as it comes",
        one_state_dir=True,
        master="local[2]",
        spark=None,
        environment=None,
        **config,
    ):
        self._ways = ways
        self._spark = {"spark.master": master, **SHORT_LIVED, **(spark or {})}
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
            # The ledger knows what goes together, however long a slow machine writes nothing.
            "join.idle.ms": 3_600_000,
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
            settings = {
                "topics": self._ledger.topics,
                "config": config,
                "spark": self._spark,
                "ways": self._ways,
            }
            self._spare = Instance(self._folder, f"instance-{self._number}", settings, self._faults, self._environment)
            self._instances.append(self._spare)

    def start(self, *, spare=True):
        """Start the prepared instance and, unless asked otherwise, prepare another."""
        self.running = self.take_spare().start()
        if spare:
            self.prepare()
        return self.running

    def launch_and_die(self, why):
        """Start the prepared instance, which an armed fault kills while it initializes its tasks."""
        doomed = self.take_spare()
        doomed.ask("start")
        doomed.wait_for_death(why)
        self.prepare()

    def take_spare(self):
        """Return the prepared instance, whose process is up, to be started by whoever took it."""
        self.prepare()
        taken, self._spare = self._spare, None
        return taken

    def wait_for_one_death(self, instances):
        wait_until(lambda: not all(instance.alive for instance in instances), lambda: f"nobody died\n{self.tail()}")

    def ensure_running(self):
        if self.running is None or not self.running.alive:
            self.start(spare=False)
        return self.running

    def arm(self, point, count, whom):
        """Let whoever reaches the point for the count-th time from now on kill the instance or itself."""
        armed = self._faults.with_suffix(".new")
        armed.write_text(f"{uuid.uuid4().hex} {point} {count} {whom}")
        armed.rename(self._faults)

    def die_in_a_batch(self, point, count, ledger):
        """Have an instance die at the point, and its successor take up what it left."""
        doomed = self.ensure_running()
        self.prepare()
        ledger.wait_for_results(self)
        self.arm(point, count, "instance")
        ledger.write(240)
        doomed.wait_for_death(f"at {point}")
        self.disarm()
        self.start(spare=False)
        ledger.wait_for_results(self)

    def lose_a_worker(self, point, ledger):
        """Have a Python worker die at the point, which its instance survives."""
        instance = self.ensure_running()
        ledger.wait_for_results(self)
        self.arm(point, 3, "worker")
        ledger.write(240)
        ledger.wait_for_results(self)
        assert self.struck
        self.disarm()
        assert instance.alive
        ledger.read_until(lambda: instance.tasks()["state"] == "RUNNING", instance.tail)

    def lose_state(self, ledger):
        """Kill the instance and remove its state; its successor, which has none, stops in good order in the end."""
        self.ensure_running()
        ledger.write(100)
        ledger.wait_for_results(self)
        self.running.kill()
        self.forget_state()
        self.start(spare=False)
        ledger.write(100)
        ledger.wait_for_results(self)
        assert self.running.stop() == "stopped NOT_RUNNING"

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
        ended = [instance for instance in self._instances if not instance.alive]

        def left():
            return {one.name: members for one in ended if (members := one.members())}

        try:
            wait_until(lambda: not left(), lambda: f"these outlived their instance: {left()}")
        finally:
            for instance in self._instances:
                instance.close()
