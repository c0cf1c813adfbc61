"""A real Kafka broker as a child process."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import shutil
import signal
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sparkrelay.devkafka.folders import add_user, make_own, make_temporary, sweep
from sparkrelay.devkafka.jars import KAFKA_VERSION, kafka_classpath
from sparkrelay.devkafka.ports import LOOPBACK, HeldPort, is_free
from sparkrelay.devkafka.probe import answers
from sparkrelay.devkafka.process import reap, run_own, spawn_bound, spawn_detached, wait_until_stopped
from sparkrelay.devkafka.settings import render, server_settings
from sparkrelay.errors import DevKafkaException
from sparkrelay.java import require_java
from sparkrelay.own_files import open_file, replace_file

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

    from sparkrelay.devkafka.settings import Listener

LOG_NAME = "broker.log"
_START_TIMEOUT_S = 90.0
_STOP_TIMEOUT_S = 20.0
_POLL_S = 0.05
_TAIL_LINES = 30
_ERROR_LINES = 5
_PORT_ATTEMPTS = 3
_LARGEST_HEAP_MB = 768
_DATA = "kraft"
_FORMAT = ("kafka.tools.StorageTool", "format")
# Transactions of KIP-890: every EndTxn returns the next epoch. Since Kafka 4.0.
_FEATURES = {"transaction.version": 2}

_PORT_TAKEN = "Address already in use"
_FOLDER_TAKEN = "Another broker uses this data folder: stop it, or name another folder."
# Signs in the log, and what to do about them.
_CAUSES = {
    _PORT_TAKEN: "The port is taken: choose another with port=N, or omit it for a free one.",
    "Failed to acquire lock on file": _FOLDER_TAKEN,
    "OutOfMemoryError": "The heap is too small: raise heap_mb.",
    "No space left on device": "The disk is full.",
    "doesn't match stored": "The data folder belongs to another cluster: name another folder or remove it.",
}


class DevKafka:
    """One Apache Kafka node (KRaft, combined roles) on the loopback interface, for demos and tests.

        with DevKafka() as kafka:
            KafkaStreams(topology, {"bootstrap.servers": kafka.bootstrap_servers, ...}, spark=spark)

    The broker ends with this process, however this process ends, unless it is ``detached``. Not for production: one
    copy of the data, a small heap, and no security unless ``listeners`` and ``server_properties`` configure it.

    Args:
        port: Port of the listener; None for a free one, kept over restarts.
        data_dir: Folder for the data, kept at the end; None for a temporary one, removed by ``close()``.
        log_dir: Folder for ``broker.log``; None for the data folder.
        heap_mb: Heap of the broker's JVM in megabytes, at most 768 (1 GB with the JVM's other memory).
        server_properties: Broker settings that override ours, by Kafka's names.
        listeners: Further listeners: with TLS or a login, or behind a proxy.
        version: Version of Apache Kafka, such as ``3.9.1``; others than ours are downloaded at first use.
        features: Feature levels for formatting new data that override ours, such as ``{"transaction.version": 0}`` for
            a cluster that was not fully upgraded. Not for Kafka 3.
        detached: Keep the broker running when this process ends.
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        log_dir: str | os.PathLike[str] | None = None,
        heap_mb: int = 512,
        server_properties: Mapping[str, str] | None = None,
        listeners: Sequence[Listener] = (),
        version: str = KAFKA_VERSION,
        features: Mapping[str, int] | None = None,
        detached: bool = False,
    ) -> None:
        if not 128 <= heap_mb <= _LARGEST_HEAP_MB:
            raise DevKafkaException(f"heap_mb={heap_mb} is out of range: give 128 to {_LARGEST_HEAP_MB} megabytes.")
        if port is not None and not 1 <= port <= 65535:
            raise DevKafkaException(f"port={port} is not a port: give 1 to 65535, or omit it for a free one.")
        self._wanted_port = port
        self._port: int | None = None
        #: Reserves the port while the broker is down, until ``close()``.
        self._reserved = contextlib.ExitStack()
        self._heap_mb = heap_mb
        self._overrides = dict(server_properties or {})
        self._listeners = tuple(listeners)
        self._version = version
        self._features = {**(_FEATURES if _major(version) >= 4 else {}), **(features or {})}
        self._detached = detached
        self._temporary = data_dir is None
        self._data_dir = Path(data_dir).absolute() if data_dir is not None else None
        self._log_dir = Path(log_dir).absolute() if log_dir is not None else None
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        where = self.bootstrap_servers if self._port is not None else "not started"
        return f"DevKafka({where}, {'running' if self.running else 'stopped'})"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """The broker's ``bootstrap.servers``; the same over restarts."""
        if self._port is None:
            raise DevKafkaException("The broker has no address yet: call start() first.")
        return f"{LOOPBACK}:{self._port}"

    @property
    def data_dir(self) -> Path:
        """The folder of the broker's data, settings and (by default) log."""
        if self._data_dir is None:
            raise DevKafkaException("The broker has no folder yet: call start() first.")
        return self._data_dir

    @property
    def log_path(self) -> Path:
        """The broker's log, to which restarts append."""
        return (self._log_dir or self.data_dir) / LOG_NAME

    @property
    def pid(self) -> int:
        """Process id of the broker's JVM."""
        if self._process is None:
            raise DevKafkaException("The broker is not running: call start() first.")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the broker's process exists, even if paused."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start the broker, unless it runs, and return once it answers requests.

        Raises:
            JavaException: Java is missing or too old.
            DevKafkaException: The jars cannot be resolved, or the broker ended or did not answer; the message includes
                the end of its log.
        """
        if self.running:
            return self
        command = [require_java(), *self._jvm_options(), "-cp", kafka_classpath(self._version)]
        fresh = self._port is None
        self._make_folders()
        try:
            self._start(command, attempts=_PORT_ATTEMPTS if fresh and self._wanted_port is None else 1)
        except BaseException:
            if fresh and self._temporary:  # the log stays, because the message names it
                shutil.rmtree(self.data_dir / _DATA, ignore_errors=True)
            raise
        return self

    def stop(self) -> None:
        """Stop the broker, if it runs, with SIGTERM, and with SIGKILL after 20 s."""
        if not self.running:
            return
        self.resume()  # a stopped process does not see SIGTERM
        reap(self._signal(signal.SIGTERM), _STOP_TIMEOUT_S)

    def kill(self) -> None:
        """Kill the broker (SIGKILL), like a crash."""
        if self.running:
            reap(self._signal(signal.SIGKILL), _STOP_TIMEOUT_S)

    def pause(self) -> None:
        """Freeze the broker (SIGSTOP). When this returns, connections are open and nothing answers."""
        process = self._signal(signal.SIGSTOP)
        if not wait_until_stopped(process.pid, _STOP_TIMEOUT_S):
            raise DevKafkaException(
                f"The broker, process {process.pid}, still runs {_STOP_TIMEOUT_S:g} s after SIGSTOP."
            )

    def resume(self) -> None:
        """Continue a paused broker (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def restart(self) -> Self:
        """Stop the broker and start it again with the same port and data."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stop the broker and remove its folder if it is temporary."""
        if self._temporary:
            self.kill()  # nobody will read the data
        else:
            self.stop()
        self._reserved.close()
        if self._temporary and self._data_dir is not None:
            shutil.rmtree(self._data_dir, ignore_errors=True)
            self._data_dir = None

    def _start(self, command: list[str], *, attempts: int) -> None:
        self._check_folder_is_ours()
        # Even a reserved port can be taken, by a server that somebody configured with it. A port that was given, or
        # that clients already know, is never replaced.
        for attempt in range(1, attempts + 1):
            try:
                self._start_once(command)
            except DevKafkaException as error:
                if attempt == attempts or _PORT_TAKEN not in str(error):
                    raise
                self._port = None
            else:
                return

    def _start_once(self, command: list[str]) -> None:
        self._choose_port()
        with HeldPort(but_not=self._port) as controller:
            settings = self._write_settings(controller.number)
            if not (self.data_dir / _DATA / "meta.properties").exists():
                self._format(command, settings)
            self._launch([*command, "kafka.Kafka", str(settings)])

    def _jvm_options(self) -> list[str]:
        return [
            f"-Xmx{self._heap_mb}m",
            f"-Xms{min(self._heap_mb, 256)}m",
            "-XX:MaxDirectMemorySize=128m",
            # With two cores, a small heap and short lives, the serial collector starts fastest and costs least.
            "-XX:+UseSerialGC",
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            "-Djava.net.preferIPv4Stack=true",
            "-Dorg.slf4j.simpleLogger.logFile=System.out",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
            "-Dorg.slf4j.simpleLogger.levelInBrackets=true",
            "-Dorg.slf4j.simpleLogger.log.org.reflections=error",
            # Log4j's API is on the class path without a configuration, and complains about it.
            "-Dlog4j2.StatusLogger.level=OFF",
        ]

    def _make_folders(self) -> None:
        try:
            if self._data_dir is None:
                sweep()
                self._data_dir = make_temporary()
        except OSError as error:
            raise DevKafkaException(f"The broker's folder cannot be made: {error}. Name a writable one.") from error
        for folder in (self._data_dir, self.log_path.parent):
            make_own(folder, "Name a folder that only this user may write to, or one that does not exist.")

    def _check_folder_is_ours(self) -> None:
        # Kafka checks too, but first overwrites the other broker's server.properties, and takes 20 s to give up.
        lock = self.data_dir / _DATA / ".lock"
        if not lock.exists():
            return
        with lock.open("r+b") as held:
            try:
                fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Java's kind of lock
            except OSError as error:
                raise DevKafkaException(f"{self.data_dir} is in use. {_FOLDER_TAKEN}") from error

    def _choose_port(self) -> None:
        if self._port is None:
            self._reserved.close()
            self._port = self._wanted_port or self._reserved.enter_context(HeldPort()).number
        if not is_free(self._port):
            raise DevKafkaException(
                f"Port {self._port} is taken ({_PORT_TAKEN}): choose another, or omit it for a free one."
            )

    def _write_settings(self, controller_port: int) -> Path:
        assert self._port is not None
        settings = server_settings(
            port=self._port,
            controller_port=controller_port,
            log_dirs=self.data_dir / _DATA,
            overrides=self._overrides,
            listeners=self._listeners,
        )
        path = self.data_dir / "server.properties"
        replace_file(path, render(settings).encode())
        return path

    def _format(self, command: list[str], settings: Path) -> None:
        # A leading dash would be taken for an option.
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
        levels = [word for name, level in self._features.items() for word in ("--feature", f"{name}={level}")]
        code, output = run_own(
            [*command, *_FORMAT, "-c", str(settings), "-t", cluster, *levels], timeout_s=_START_TIMEOUT_S
        )
        if code:
            raise DevKafkaException(f"Kafka's storage tool could not format {self.data_dir} (exit {code}):\n{output}")

    def _launch(self, command: list[str]) -> None:
        spawn = spawn_detached if self._detached else spawn_bound
        with os.fdopen(open_file(self.log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as log:
            begins = log.tell()
            self._process = spawn(command, log=log, cwd=self.data_dir)
        if self._temporary:
            add_user(self.data_dir, self._process.pid)
        deadline = time.monotonic() + _START_TIMEOUT_S
        assert self._port is not None
        try:
            while not answers(LOOPBACK, self._port):
                code = self._process.poll()
                if code is not None:
                    raise DevKafkaException(self._failure(f"The broker ended with exit code {code}.", begins))
                if time.monotonic() > deadline:
                    what = f"The broker did not answer within {_START_TIMEOUT_S:.0f} s."
                    raise DevKafkaException(self._failure(what, begins))
                time.sleep(_POLL_S)
        except BaseException:
            self.kill()  # also after Ctrl-C
            raise

    def _failure(self, what: str, begins: int) -> str:
        """Return a message with likely causes, the first errors and the end of the log."""
        with self.log_path.open("rb") as log:
            log.seek(begins)
            text = log.read().decode(errors="replace")
        causes = [f"{sign}. {remedy}" for sign, remedy in _CAUSES.items() if sign in text]
        lines = text.strip().splitlines()
        # The cause precedes the hundred lines of an orderly shutdown.
        first = next((number for number, line in enumerate(lines) if "[ERROR]" in line), len(lines))
        causes += [line.strip() for line in lines[first : first + _ERROR_LINES]]
        tail = "\n".join(lines[-_TAIL_LINES:]) or "(the log is empty)"
        return " ".join([what, *causes, f"End of its log, {self.log_path}:"]) + "\n" + tail

    def _signal(self, number: signal.Signals) -> subprocess.Popen[bytes]:
        if not self.running or self._process is None:
            raise DevKafkaException(f"The broker is not running, so it cannot get {number.name}: call start() first.")
        self._process.send_signal(number)
        return self._process


def _major(version: str) -> int:
    number = version.partition(".")[0]
    if not number.isdigit():
        raise DevKafkaException(
            f"version={version!r} is not a version of Apache Kafka: give one such as {KAFKA_VERSION}."
        )
    return int(number)
