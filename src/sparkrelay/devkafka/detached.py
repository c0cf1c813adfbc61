"""The one development broker of a user, which outlives the command that started it.

``broker.json`` in the state folder says which process it is: pid and start time, because a pid alone may belong to
somebody else by now. A file lock makes two ``start`` at once one start. The log lies beside it, so that it is still
there when a temporary data folder has gone.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparkrelay.devkafka.broker import LOG_NAME, DevKafka
from sparkrelay.devkafka.ports import LOOPBACK
from sparkrelay.devkafka.probe import answers
from sparkrelay.errors import DevKafkaException
from sparkrelay.host import process_start

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DetachedBroker", "Started", "find_broker", "start_broker", "state_dir", "stop_broker"]

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
        """Tell whether it serves requests."""
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


def state_dir() -> Path:
    """Return the folder of log and record: ``$XDG_STATE_HOME/sparkrelay`` or ``~/.local/state/sparkrelay``."""
    root = os.environ.get("XDG_STATE_HOME")
    return (Path(root) if root else Path.home() / ".local" / "state") / "sparkrelay"


def find_broker() -> DetachedBroker | None:
    """Return the broker that was started last and not stopped, whether or not it is still alive."""
    try:
        return DetachedBroker(**json.loads(_record_path().read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        # Half a record cannot be (it is renamed into place); another version's may be.
        return None


def start_broker(*, port: int | None = None, data_dir: str | os.PathLike[str] | None = None) -> Started:
    """Start the development broker, or find it running, and return when it answers.

    Raises:
        DevKafkaException: It cannot start, or it runs with another port or data folder than asked for.
    """
    with _locked():
        found = find_broker()
        if found is not None and found.alive:
            _check_same(found, port, data_dir)
            _wait_for_answer(found)
            return Started(broker=found, was_running=True)
        if found is not None:
            _forget(found)
        kafka = DevKafka(port=port, data_dir=data_dir, log_dir=state_dir(), detached=True)
        (state_dir() / LOG_NAME).unlink(missing_ok=True)
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
            _write(broker)
        except BaseException:
            kafka.close()
            raise
        return Started(broker=broker, lost=found)


def stop_broker() -> DetachedBroker | None:
    """Stop the development broker and return what was known of it, or None if none had been started.

    One that is found dead is only forgotten; ``alive`` of the returned value is False in either case.
    """
    with _locked():
        broker = find_broker()
        if broker is not None:
            _end(broker)
            _forget(broker)
        return broker


def _check_same(found: DetachedBroker, port: int | None, data_dir: str | os.PathLike[str] | None) -> None:
    differs = []
    if port is not None and port != found.port:
        differs.append(f"on port {found.port}, not {port}")
    if data_dir is not None and Path(data_dir).resolve() != Path(found.data_dir).resolve():
        differs.append(f"with its data in {found.data_dir}, not {Path(data_dir).absolute()}")
    if differs:
        raise DevKafkaException(
            f"A development broker (pid {found.pid}) runs already, {' and '.join(differs)}. "
            "Run 'sparkrelay broker stop' first."
        )


def _wait_for_answer(broker: DetachedBroker) -> None:
    if not broker.answers():
        raise DevKafkaException(
            f"A development broker (pid {broker.pid}) is there but does not answer on {broker.bootstrap_servers} "
            f"within {_PROBE_TIMEOUT_S:.0f} s. Look at {broker.log_path}, or run 'sparkrelay broker stop'."
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


def _forget(broker: DetachedBroker) -> None:
    if broker.temporary:
        shutil.rmtree(broker.data_dir, ignore_errors=True)
    _record_path().unlink(missing_ok=True)


def _record_path() -> Path:
    return state_dir() / "broker.json"


def _write(broker: DetachedBroker) -> None:
    draft = _record_path().with_suffix(".new")
    draft.write_text(json.dumps(asdict(broker), indent=1) + "\n")
    draft.replace(_record_path())


@contextmanager
def _locked() -> Iterator[None]:
    try:
        state_dir().mkdir(parents=True, exist_ok=True)
        lock = (state_dir() / "broker.lock").open("a")
    except OSError as error:
        raise DevKafkaException(
            f"The folder {state_dir()} cannot be used ({error}). Set XDG_STATE_HOME to a writable folder."
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
