"""Development brokers of a user, told apart by name, which outlive the command that started them.

``broker.json`` in a broker's folder says which process it is: pid and start time, because a pid alone may belong to
somebody else by now. A file lock makes two ``start`` at once one start. The log lies beside it, so that it is still
there when a temporary data folder has gone. What the record names is killed and removed by ``stop``, so it is not
believed where others may write to the folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparkrelay.devkafka.broker import LOG_NAME, DevKafka
from sparkrelay.devkafka.folders import make_own, require_own
from sparkrelay.devkafka.ports import LOOPBACK
from sparkrelay.devkafka.probe import answers
from sparkrelay.errors import DevKafkaException
from sparkrelay.host import process_start
from sparkrelay.own_files import open_file, read_file, replace_file, state_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DEFAULT_NAME", "DetachedBroker", "Started", "broker_command", "find_broker", "start_broker", "stop_broker"]

#: The broker that is meant where none is named.
DEFAULT_NAME = "default"

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_RECORD = "broker.json"
_OTHER_FOLDER = "Set XDG_STATE_HOME to a folder that only this user may write to."
_STOP_TIMEOUT_S = 20.0
_POLL_S = 0.02
_PROBE_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DetachedBroker:
    """What is known of the broker that ``sparkrelay broker start`` left running.

    Attributes:
        pid: Process id of its JVM.
        started: Opaque start time of that process.
        port: Its port on the loopback interface.
        data_dir: Folder of its data.
        temporary: True if the folder goes when the broker is stopped.
        log_path: Its log.
    """

    pid: int
    started: str
    port: int
    data_dir: str
    temporary: bool
    log_path: str

    @property
    def bootstrap_servers(self) -> str:
        """Its address, as ``bootstrap.servers`` wants it."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def alive(self) -> bool:
        """True if its process is there."""
        return process_start(self.pid) == self.started

    def answers(self) -> bool:
        """Return whether it serves requests."""
        return answers(LOOPBACK, self.port, timeout_s=_PROBE_TIMEOUT_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Outcome of ``start_broker``.

    Attributes:
        broker: The broker that runs now.
        was_running: True if it ran before.
        lost: A broker that had been started earlier and was found dead, if any.
    """

    broker: DetachedBroker
    was_running: bool = False
    lost: DetachedBroker | None = None


def broker_command(verb: str, name: str) -> str:
    """Return what to type for a broker of that name."""
    return f"sparkrelay broker {verb}" + ("" if name == DEFAULT_NAME else f" --name {name}")


def find_broker(name: str = DEFAULT_NAME) -> DetachedBroker | None:
    """Return the broker that was started last under that name and not stopped, whether or not it is still alive.

    Raises:
        DevKafkaException: The record may be somebody else's, or the name cannot be one.
    """
    folder = _folder(name)
    if not folder.is_dir():
        return None
    for part in _own_folders(folder):
        require_own(part, _OTHER_FOLDER)
    try:
        return DetachedBroker(**json.loads(read_file(folder / _RECORD)))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        # Half a record cannot be (it is renamed into place); another version's may be.
        return None


def start_broker(
    *, port: int | None = None, data_dir: str | os.PathLike[str] | None = None, name: str = DEFAULT_NAME
) -> Started:
    """Start the development broker of that name, or find it running, and return when it answers.

    Raises:
        DevKafkaException: It cannot start, or it runs with another port or data folder than asked for.
    """
    with _locked(name) as folder:
        found = find_broker(name)
        if found is not None and found.alive:
            _check_same(found, port, data_dir, name)
            _wait_for_answer(found, name)
            return Started(broker=found, was_running=True)
        if found is not None:
            _forget(found, folder)
        kafka = DevKafka(port=port, data_dir=data_dir, log_dir=folder, detached=True)
        (folder / LOG_NAME).unlink(missing_ok=True)
        try:
            kafka.start()
            started = process_start(kafka.pid)
            if started is None:
                raise DevKafkaException(f"The broker (pid {kafka.pid}) ended right after its start: {kafka.log_path}")
            broker = DetachedBroker(
                pid=kafka.pid,
                started=started,
                port=int(kafka.bootstrap_servers.rpartition(":")[2]),
                data_dir=str(kafka.data_dir),
                temporary=data_dir is None,
                log_path=str(kafka.log_path),
            )
            replace_file(folder / _RECORD, (json.dumps(asdict(broker), indent=1) + "\n").encode())
        except BaseException:
            kafka.close()
            raise
        return Started(broker=broker, lost=found)


def stop_broker(name: str = DEFAULT_NAME) -> DetachedBroker | None:
    """Stop the development broker of that name; return what was known of it, or None if none had been started.

    One that is found dead is only forgotten; ``alive`` of the returned value is False in either case.
    """
    with _locked(name) as folder:
        broker = find_broker(name)
        if broker is not None:
            _end(broker)
            _forget(broker, folder)
        return broker


def _check_same(found: DetachedBroker, port: int | None, data_dir: str | os.PathLike[str] | None, name: str) -> None:
    differs = []
    if port is not None and port != found.port:
        differs.append(f"on port {found.port}, not {port}")
    if data_dir is not None and Path(data_dir).resolve() != Path(found.data_dir).resolve():
        differs.append(f"with its data in {found.data_dir}, not {Path(data_dir).absolute()}")
    if differs:
        raise DevKafkaException(
            f"A development broker (pid {found.pid}) runs already, {' and '.join(differs)}. "
            f"Run '{broker_command('stop', name)}' first, or start another one beside it with --name."
        )


def _wait_for_answer(broker: DetachedBroker, name: str) -> None:
    if not broker.answers():
        raise DevKafkaException(
            f"A development broker (pid {broker.pid}) is there but does not answer on {broker.bootstrap_servers} "
            f"within {_PROBE_TIMEOUT_S:.0f} s. Look at {broker.log_path}, or run '{broker_command('stop', name)}'."
        )


def _end(broker: DetachedBroker) -> None:
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    with suppress(ProcessLookupError):
        if broker.alive:
            os.kill(broker.pid, signal.SIGCONT)  # a stopped process does not see SIGTERM
            os.kill(broker.pid, signal.SIGTERM)
        while broker.alive:
            if time.monotonic() > deadline:
                os.kill(broker.pid, signal.SIGKILL)
            time.sleep(_POLL_S)


def _forget(broker: DetachedBroker, folder: Path) -> None:
    if broker.temporary:
        shutil.rmtree(broker.data_dir, ignore_errors=True)
    (folder / _RECORD).unlink(missing_ok=True)


def _folder(name: str) -> Path:
    """Return the folder of a broker's record and log."""
    if not _NAME.fullmatch(name):
        raise DevKafkaException(
            f"{name!r} cannot be the name of a broker: give 1 to 64 letters, digits, '_', '-' or '.', which it may not "
            "begin with."
        )
    return state_folder() if name == DEFAULT_NAME else state_folder() / f"broker-{name}"


def _own_folders(folder: Path) -> tuple[Path, ...]:
    """Return what must be ours, from the top: the folder, and the one that holds it if that is ours too."""
    return (folder,) if folder == state_folder() else (folder.parent, folder)


@contextmanager
def _locked(name: str) -> Iterator[Path]:
    folder = _folder(name)
    for part in _own_folders(folder):
        make_own(part, _OTHER_FOLDER)
    with os.fdopen(open_file(folder / "broker.lock", os.O_WRONLY | os.O_CREAT), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
