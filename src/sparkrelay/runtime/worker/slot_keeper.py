"""The keeper of an executor's slot: a small process that holds the slot's lock for as long as the executor's JVM lives.

The driver, possibly on another host, cannot hold it, nor can a Python worker, which an error or a minute's idleness
ends. So a worker forks a keeper: it claims the slot, reports it, and then only checks whether the JVM is alive. However
the executor dies, its slot is soon free for the replacement that Spark starts on the host.

A fork of the worker, not a fresh interpreter: it starts at once and shares loaded memory. It leaves the daemon's
process group, which the daemon kills when it ends, and closes every inherited file.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import time
from dataclasses import dataclass
from io import FileIO
from typing import TYPE_CHECKING, NoReturn

from sparkrelay.errors import SparkRelayError, StreamsException
from sparkrelay.host import process_start
from sparkrelay.runtime.contract.commands import decode_bytes, encode_bytes
from sparkrelay.runtime.contract.host_metadata import HostMetadata
from sparkrelay.runtime.worker.context import current_command, drain, report_row, reporting
from sparkrelay.runtime.worker.own.executor import own_executor
from sparkrelay.state import Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from sparkrelay.types import ProcessId, TaskId

_LOOK_SECONDS = 0.1
_RELEASE_SECONDS = 10.0
#: More than the buffers of PySpark and of a Unix socket (64 and 208 KiB): writing it completes only if Spark reads it.
_PADDING = bytes(512 << 10)


@dataclass(frozen=True, slots=True)
class ClaimCommand:
    """Claim a slot of an application on the executor's host."""

    state_dir: str | None
    application_id: str


@dataclass(frozen=True, slots=True)
class ReleaseCommand:
    """Ask a keeper, named by pid and start time, to release its slot."""

    keeper: int
    keeper_start: str


@dataclass(frozen=True, slots=True)
class ClaimedSlot:
    """A remote slot, the tasks with local state there, and the keeper: its pid, unique with ``keeper_start``."""

    path: str
    number: int
    process_id: ProcessId
    host_metadata: HostMetadata
    tasks: tuple[TaskId, ...]
    keeper: int
    keeper_start: str


@reporting
def claim_slot(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Claim a slot for this executor; yield one row that describes it."""
    drain(batches)
    command = current_command(ClaimCommand)
    own = own_executor()
    assert own is not None, "only executors are asked to claim slots"
    claimed, confirm = hold_slot(command, lambda: process_start(own.jvm) == own.jvm_start)
    with confirm:
        yield report_row([claimed], _PADDING)
        # Spark asks for the next row, so it has read this one. If the job ends earlier, so does the keeper, as nobody
        # would release its slot. The worker itself may not notice that end until it writes.
        confirm.write(b"k")


@reporting
def release_slot(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """End a keeper; its slot is free on return."""
    drain(batches)
    command = current_command(ReleaseCommand)
    deadline = time.monotonic() + _RELEASE_SECONDS
    if process_start(command.keeper) == command.keeper_start:
        os.kill(command.keeper, signal.SIGTERM)
    while process_start(command.keeper) == command.keeper_start and time.monotonic() < deadline:
        time.sleep(0.01)
    yield report_row([process_start(command.keeper) != command.keeper_start])


def hold_slot(command: ClaimCommand, wanted: Callable[[], bool]) -> tuple[ClaimedSlot, FileIO]:
    """Fork a keeper that holds a slot while ``wanted()``, once it is confirmed.

    Returns the slot, and a pipe to the keeper: one byte confirms the slot; if it is closed before, the keeper ends.
    Raises SparkRelayError if the slot cannot be claimed.
    """
    reading, writing = os.pipe()
    confirmed, confirming = os.pipe()
    child = os.fork()
    if child == 0:
        # The keeper's parent ends at once, so that nobody must wait for the keeper.
        if os.fork():
            os._exit(0)
        _keep(command, wanted, writing, confirmed)
    os.close(writing)
    os.close(confirmed)
    os.waitpid(child, 0)
    confirm = FileIO(confirming, "w")
    try:
        with os.fdopen(reading, "rb") as answer:
            data = answer.read()
        if not data:
            raise StreamsException(f"the keeper of a slot of {command.application_id} died at once")
        claimed: ClaimedSlot | SparkRelayError = decode_bytes(data)
        if isinstance(claimed, SparkRelayError):
            raise claimed
    except BaseException:
        confirm.close()
        raise
    return claimed, confirm


def _keep(command: ClaimCommand, wanted: Callable[[], bool], writing: int, confirmed: int) -> NoReturn:
    # Objects of the forked worker must not be finalized here: it still uses them.
    gc.disable()
    try:
        _detach({writing, confirmed})
        answer, slot = _claim(command)
        with os.fdopen(writing, "wb") as file:
            file.write(encode_bytes(answer))
        if slot is not None and _is_confirmed(confirmed, wanted):
            while wanted():
                time.sleep(_LOOK_SECONDS)
    finally:
        os._exit(0)


def _is_confirmed(confirmed: int, wanted: Callable[[], bool]) -> bool:
    """Wait until the claimant has the slot, or is gone."""
    while wanted():
        if select.select([confirmed], [], [], _LOOK_SECONDS)[0]:
            return bool(os.read(confirmed, 1))
    return False


def _detach(kept: set[int]) -> None:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    # Spark deletes the executor's working directory.
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    highest = os.sysconf("SC_OPEN_MAX")
    start = 3
    for file in [*sorted(kept), highest if 0 < highest <= 1 << 20 else 1 << 16]:
        os.closerange(start, file)
        start = file + 1


def _claim(command: ClaimCommand) -> tuple[ClaimedSlot | SparkRelayError, Slot | None]:
    try:
        slot = Slot.claim(command.state_dir, command.application_id)
    except SparkRelayError as error:
        return error, None
    pid = os.getpid()
    claimed = ClaimedSlot(
        path=str(slot.path),
        number=slot.number,
        process_id=slot.process_id,
        host_metadata=HostMetadata.here(),
        tasks=tuple(slot.task_ids()),
        keeper=pid,
        keeper_start=process_start(pid) or "",
    )
    return claimed, slot
