"""A user's development brokers, which outlive the command that started them and are distinguished by name.

``broker.json`` in a broker's folder identifies its process by pid and start time, because the pid alone may be reused.
A file lock serializes concurrent starts. The log is beside it, so that it survives a temporary data folder. ``stop``
kills and removes what the record names, so the record is not trusted where others may write to the folder.
"""

from __future__ import annotations

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
from sparkrelay.devkafka.folders import locked, make_own, require_own
from sparkrelay.devkafka.ports import LOOPBACK
from sparkrelay.devkafka.probe import PROBE_TIMEOUT_S, answers
from sparkrelay.errors import DevKafkaException
from sparkrelay.host import process_start
from sparkrelay.own_files import read_file, replace_file, state_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The broker if none is named.
DEFAULT_NAME = "default"

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_RECORD = "broker.json"
_OTHER_FOLDER = "Set XDG_STATE_HOME to a folder that only this user may write to."
_STOP_TIMEOUT_S = 20.0
_POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class DetachedBroker:
    """The broker that ``sparkrelay broker start`` left running; ``started`` is the opaque start time of its process.

    ``temporary`` means that the data folder is removed when the broker is stopped.
    """

    pid: int
    started: str
    port: int
    data_dir: str
    temporary: bool
    log_path: str

    @property
    def bootstrap_servers(self) -> str:
        """Its ``bootstrap.servers``."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def alive(self) -> bool:
        """Whether its process exists."""
        return process_start(self.pid) == self.started

    def answers(self) -> bool:
        """Return whether it answers requests."""
        return answers(LOOPBACK, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The running broker; whether it was running before; and one found dead that had been started earlier, if any."""

    broker: DetachedBroker
    was_running: bool = False
    lost: DetachedBroker | None = None


def broker_command(verb: str, name: str) -> str:
    """Return the command line for a broker of that name."""
    return f"sparkrelay broker {verb}" + ("" if name == DEFAULT_NAME else f" --name {name}")


def find_broker(name: str = DEFAULT_NAME) -> DetachedBroker | None:
    """Return the broker of that name that was started and not stopped, dead or alive.

    Raises:
        DevKafkaException: The name is invalid, or others may have written the record.
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
        return None  # of another version; it cannot be truncated, because it is renamed into place


def start_broker(
    *, port: int | None = None, data_dir: str | os.PathLike[str] | None = None, name: str = DEFAULT_NAME
) -> Started:
    """Start the development broker of that name, unless it runs, and return once it answers.

    Raises:
        DevKafkaException: It cannot start, or runs with another port or data folder than requested.
    """
    with _locked(name) as folder:
        found = find_broker(name)
        if found is not None and found.alive:
            _check_same(found, port, data_dir, name)
            if not found.answers():
                raise DevKafkaException(
                    f"A development broker (pid {found.pid}) is there but does not answer on {found.bootstrap_servers} "
                    f"within {PROBE_TIMEOUT_S:.0f} s. Look at {found.log_path}, or run "
                    f"'{broker_command('stop', name)}'."
                )
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
    """Stop the development broker of that name, unless it is dead; return its record, None if none had been started."""
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
            f"{name!r} cannot be the name of a broker: give 1 to 64 letters, digits, '_', '-' or '.', not beginning "
            "with '.'."
        )
    return state_folder() if name == DEFAULT_NAME else state_folder() / f"broker-{name}"


def _own_folders(folder: Path) -> tuple[Path, ...]:
    """Return the folders that must be ours, outermost first."""
    return (folder,) if folder == state_folder() else (folder.parent, folder)


@contextmanager
def _locked(name: str) -> Iterator[Path]:
    folder = _folder(name)
    for part in _own_folders(folder):
        make_own(part, _OTHER_FOLDER)
    with locked(folder / "broker.lock"):
        yield folder
