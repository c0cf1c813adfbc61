"""Spark's standalone cluster on loopback: a master and workers as real processes, from the jars that PySpark brings.

`local-cluster` has master and workers in the driver's JVM, so neither can be killed alone. Here each is a session of
its own; a worker's executors, with their Python, are in the worker's. No port is a fixed one.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import urllib.request
from pathlib import Path

from tests import evidence
from tests.waiting import LONG, wait_until

from sparkrelay.demo.children import session_members
from sparkrelay.devkafka.process import spawn_bound

HOST = "127.0.0.1"

#: They do little, and not for long.
_JAVA = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_SCALA = "2.13"
_NO_PAGES_ON_FIXED_PORTS = ("--host", HOST, "--webui-port", "0")
_ADDRESS = re.compile(r"Starting Spark master at (spark://\S+:(\d+))")
_RETRIES = re.compile(r"Retrying connection to master \(attempt # 1\)")
_PAGE = re.compile(r"Bound \w+WebUI to \S+, and started at \S+:(\d+)")


class Daemon:
    """A master or a worker: one JVM, and whatever it starts."""

    def __init__(self, name, log, command):
        self.name, self.log = name, log
        evidence.watch(log)
        self._begins = log.stat().st_size if log.exists() else 0
        with log.open("ab") as file:
            # However the test run ends, it ends with it; its executors then do so of themselves.
            self.process = spawn_bound(command, log=file, cwd=log.parent)

    def forget(self):
        """Let `said` look at what is logged from now on only."""
        self._begins = self.log.stat().st_size

    def said(self, pattern):
        """Wait until its log has a pattern; return the match. A former process of this name may have said it, too."""
        found = []

        def look():
            assert self.process.poll() is None, f"{self.name} has ended\n{self.tail()}"
            text = self.log.read_bytes()[self._begins :].decode(errors="replace")
            found[:] = filter(None, [pattern.search(text)])
            return found

        wait_until(look, f"{self.name} did not say {pattern.pattern}")
        return found[0]

    def executors(self):
        """Return the JVMs of a worker's executors: executor id -> pid."""
        found = {}
        for pid in session_members(self.process.pid):
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                if "--executor-id" in command and "java" in command[0]:
                    found[command[command.index("--executor-id") + 1]] = pid
        return found

    def kill(self):
        """SIGKILL the JVM alone: what it has started notices for itself."""
        self.process.kill()
        self.process.wait(LONG)

    def close(self):
        """SIGKILL it, and everything that it has started."""
        for pid in session_members(self.process.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(LONG)

    def tail(self):
        lines = self.log.read_text(errors="replace").splitlines()
        return f"--- {self.log}\n" + "\n".join(lines[-40:])


class StandaloneCluster:
    """A master, which can be killed and started again, and workers, which come and go.

    Args:
        folder: logs, working directories, and what the master recovers from.
        spark_home: as the fixture of that name.
        recovers: with `spark.deploy.recoveryMode=FILESYSTEM`: a master that is started again knows its applications.
    """

    def __init__(self, folder, spark_home, *, recovers=True):
        self._folder = folder
        self._jars = str(Path(spark_home).resolve() / "jars" / "*")
        # The scripts that start daemons in an installation say which Scala it is of, if they look for it.
        spark = {"SPARK_HOME": spark_home, "SPARK_SCALA_VERSION": _SCALA, "SPARK_LOCAL_IP": HOST}
        self._environment = [f"{key}={value}" for key, value in spark.items()]
        self._recovers = recovers
        self._page = None
        self.port, self.url = 0, None
        self.master = None
        self.workers = []

    def start_master(self):
        """Start the master, at the port that it had before; return when it takes applications and workers."""
        settings = {"spark.worker.timeout": "30"}
        if self._recovers:
            settings |= {
                "spark.deploy.recoveryMode": "FILESYSTEM",
                "spark.deploy.recoveryDirectory": str(self._folder / "recovery"),
            }
        command = self._command("master.Master", settings, "--port", str(self.port))
        self.master = Daemon("master", self._folder / "master.log", command)
        found = self.master.said(_ADDRESS)
        self.url, self.port = found[1], int(found[2])
        self._page = int(self.master.said(_PAGE)[1])
        wait_until(lambda: self.status()["status"] == "ALIVE", "the master does not recover")
        return self

    def kill_master(self):
        """SIGKILL the master."""
        for worker in self.workers:
            worker.forget()
        self.master.kill()

    def restart_master(self):
        """Start the master that was killed again; return when it has recovered.

        A worker that registers of itself meanwhile is taken for a new one, and the executors that it runs are forgotten
        and started once more (Spark's `Master.registerWorker`). It tries that within 15 s, and then not for 30 s.
        """
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.said(_RETRIES)
        return self.start_master()

    def add_worker(self, cores=1):
        """Start a worker; return it once it is registered."""
        before = self._alive_workers()
        number = len(self.workers) + 1
        folder = self._folder / f"worker-{number}"
        settings = {"spark.decommission.enabled": "true", "spark.worker.initialRegistrationRetries": "1"}
        command = self._command(
            "worker.Worker", settings, "--cores", str(cores), "--memory", "4g", "--work-dir", str(folder), self.url
        )
        worker = Daemon(f"worker {number}", self._folder / f"worker-{number}.log", command)
        self.workers.append(worker)
        wait_until(lambda: self._alive_workers() - before, f"{worker.name} is not registered\n{worker.tail()}")
        return worker

    def decommission(self, worker):
        """Have a worker decommission itself, as `sbin/decommission-worker.sh` does."""
        os.kill(worker.process.pid, signal.SIGPWR)

    def status(self):
        """Return what the master says of itself: `status`, `workers`, `activeapps` and more."""
        # Not through a proxy of the environment's.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{HOST}:{self._page}/json/", timeout=LONG) as answer:
            return json.load(answer)

    def executors(self):
        """Return the executors' JVMs: (worker, executor id) -> pid."""
        return {(worker, id_): pid for worker in self.workers for id_, pid in worker.executors().items()}

    def tail(self):
        return "\n".join(daemon.tail() for daemon in (self.master, *self.workers) if daemon is not None)

    def close(self):
        for daemon in (*self.workers, self.master):
            if daemon is not None:
                daemon.close()

    def _alive_workers(self):
        return {worker["id"] for worker in self.status()["workers"] if worker["state"] == "ALIVE"}

    def _command(self, class_, settings, *arguments):
        options = [f"-D{key}={value}" for key, value in settings.items()]
        class_ = f"org.apache.spark.deploy.{class_}"
        java = [shutil.which("env"), *self._environment, "java", *_JAVA]
        return [*java, *options, "-cp", self._jars, class_, *_NO_PAGES_ON_FIXED_PORTS, *arguments]
