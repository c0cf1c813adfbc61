"""A resident Spark job, through which micro-batches pass.

Starting a Spark job costs 20 to 50 ms and as much CPU, even for a few rows. A resident job is started once; then a
micro-batch is a command to the source of each leg and a report from each last step (``worker.resident``). For Spark it
is one long-running job with one task per leg.

It guarantees the same as a job per micro-batch: every commanded leg reports, or the job fails with the same errors. It
may be ended between any two micro-batches.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.errors import SparkRelayError
from sparkrelay.runtime.contract.channel import Channel, ChannelClosed, Listener
from sparkrelay.runtime.contract.commands import BatchCommand, decode_bytes, encode_bytes
from sparkrelay.runtime.contract.resident import ResidentCommand, Role, read_stamp
from sparkrelay.runtime.spark.cancelling import cancel_until
from sparkrelay.runtime.spark.jobs import JobFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import DataFrame

    from sparkrelay.runtime.contract.commands import LegReport
    from sparkrelay.runtime.spark.jobs import Jobs

log = logging.getLogger(__name__)

#: Larger than an Arrow batch of the plan (``resident_plan.ARROW_BYTES``) and than the JVM's buffers
#: (``spark.buffer.size``).
_MARKER_BYTES: Final = 70_000
_BUFFER_BYTES: Final = 64 << 10
_LOOK_SECONDS: Final = 0.05
#: Bound on a step's first message and on sending it a command: neither waits for anything else.
_STEP_SECONDS: Final = 30.0
#: Bound on the orderly end of the steps.
_END_SECONDS: Final = 5.0


class ResidentJob:
    """One job, owned by a batch thread. Its tasks hold one Spark slot per leg.

    ``steps`` is the number of steps of each leg that connect to the driver.
    """

    def __init__(self, jobs: Jobs, frame: DataFrame, steps: Mapping[str, int]) -> None:
        self._jobs = jobs
        self._frame = frame
        self._steps = steps
        self._sources: dict[str, Channel] = {}
        self._lasts: dict[str, Channel] = {}
        self._others: list[Channel] = []
        self._command: BatchCommand | None = None
        self._failure: SparkRelayError | None = None
        #: CPU time of its workers for micro-batches.
        self.cpu_seconds = 0.0
        self._over = threading.Event()
        #: Readable once the job has ended.
        self._woken, self._wake = socket.socketpair()
        self._thread: threading.Thread | None = None

    @property
    def legs(self) -> frozenset[str]:
        """The legs of its micro-batches."""
        return frozenset(self._steps)

    @property
    def over(self) -> bool:
        """True once the job has ended, for any reason."""
        return self._over.is_set()

    def open(self, seconds: float, due: Callable[[], bool]) -> None:
        """Start the job, wait for all its steps, and send an empty micro-batch through it.

        ``due`` returns whether the job is no longer needed.

        Raises:
            JobFailed: it took longer than ``seconds``, perhaps for lack of free cores.
            SparkRelayError: as :meth:`run`.
        """
        deadline = time.monotonic() + seconds
        target = self._jobs.target
        try:
            listener = Listener(target.failure_key, target.driver_address())
            try:
                command = ResidentCommand(listener.address, self._marker_bytes())
                self._start(command)
                self._await_steps(listener, deadline, due)
            finally:
                listener.close()
            self.run(BatchCommand(((),), {}), self._steps, description="resident, an empty micro-batch", until=deadline)
        except BaseException:
            self.close(cancel=True)
            raise

    def run(
        self, command: BatchCommand, legs: Iterable[str], *, description: str, until: float | None = None
    ) -> list[LegReport]:
        """Run one micro-batch, or one wave of it.

        Args:
            command: for one Spark partition.
            legs: those with input.
            description: for messages.
            until: deadline (monotonic seconds); None for none.

        Raises:
            JobCancelled: the micro-batch was cancelled.
            JobFailed: user code raised, a Python worker died, or it took too long.
            SparkRelayError: a worker's own error, such as a record that cannot be decoded.
        """
        under_way = self._jobs.target.under_way(f"the micro-batch {description!r} of a resident job")
        self._command = command
        try:
            with self._jobs.cancellable(), under_way:
                return self._exchange(encode_bytes(command), set(legs), until)
        finally:
            self._command = None

    def close(self, *, cancel: bool = False) -> None:
        """End the job and wait for its end; ``cancel`` leaves its steps no time for an orderly end."""
        for channel in (*self._sources.values(), *self._lasts.values(), *self._others):
            channel.close()
        if self._thread is not None:
            ended = not cancel and self._over.wait(_END_SECONDS)
            if not ended and not cancel_until(self._over.wait, self._jobs.cancel_resident):
                log.warning("Spark has not ended the cancelled resident job of %s", self._thread.name)
            self._thread.join(_END_SECONDS)
            self._thread = None
        self._woken.close()
        self._wake.close()

    def _marker_bytes(self) -> int:
        context = self._frame.sparkSession.sparkContext
        buffer = int(context._jsc.sc().conf().getSizeAsBytes("spark.buffer.size", str(_BUFFER_BYTES)))
        return _MARKER_BYTES + max(0, buffer - _BUFFER_BYTES)

    def _start(self, command: ResidentCommand) -> None:
        def stay() -> None:
            try:
                self._jobs.run_resident(
                    self._frame,
                    command,
                    description=f"resident: micro-batches of {', '.join(self._steps)} pass through this job",
                    current=lambda: self._command,
                )
            except SparkRelayError as error:
                self._failure = error
            except Exception as error:  # noqa: BLE001 - raised again by the waiter
                self._failure = JobFailed(f"a resident job could not run: {error}")
            finally:
                self._over.set()
                with contextlib.suppress(OSError):
                    self._wake.send(b"o")

        self._thread = threading.Thread(target=stay, name=f"{threading.current_thread().name}-resident", daemon=True)
        self._thread.start()

    def _await_steps(self, listener: Listener, deadline: float, due: Callable[[], bool]) -> None:
        missing = sum(self._steps.values())
        while missing:
            if self.over:
                raise self._ended()
            if time.monotonic() >= deadline or due():
                raise JobFailed(f"{missing} steps of a resident job did not begin in time: has Spark no free core?")
            try:
                channel = listener.accept(_LOOK_SECONDS)
                if channel is None:
                    continue
                channel.bound(_STEP_SECONDS)
                self._add(channel)
            except ChannelClosed as error:
                log.warning("a connection to a resident job was refused: %s", error)
                continue
            missing -= 1

    def _add(self, channel: Channel) -> None:
        role, _, leg = (channel.receive() or b"").decode(errors="replace").partition(" ")
        if leg not in self._steps or role not in set(Role):
            channel.close()
            raise ChannelClosed(f"it is not a step of this job: {role} {leg}")
        if role == Role.SOURCE:
            self._sources[leg] = channel
        elif role == Role.LAST:
            self._lasts[leg] = channel
        else:
            self._others.append(channel)

    def _exchange(self, command: bytes, legs: set[str], until: float | None) -> list[LegReport]:
        reports: list[LegReport] = []
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            for leg in legs:
                selector.register(self._lasts[leg], selectors.EVENT_READ, leg)
            try:
                for leg in legs:
                    self._sources[leg].send(command)
                while legs:
                    wait = None if until is None else max(until - time.monotonic(), 0.0)
                    ready = selector.select(wait)
                    if not ready:
                        raise JobFailed("an empty micro-batch did not pass through a resident job in time")
                    for key, _ in ready:
                        if key.data is None:
                            raise self._ended()
                        reports += self._report(key.data)
                        legs.discard(key.data)
                        selector.unregister(key.fileobj)
            except ChannelClosed as error:
                raise self._ended(error) from error
        return reports

    def _report(self, leg: str) -> list[Any]:
        data = self._lasts[leg].receive()
        if data is None:
            raise ChannelClosed(f"the last step of leg {leg} has ended")
        seconds, report = read_stamp(data)
        self.cpu_seconds += seconds
        found: list[Any] = decode_bytes(report)
        return found

    def _ended(self, reason: ChannelClosed | None = None) -> SparkRelayError:
        """Return why the job ended; after the loss of a step it takes a moment to end."""
        if not self._over.wait(_STEP_SECONDS):
            return JobFailed(f"a resident job has lost a step: {reason}")
        return self._failure or JobFailed("a resident job has ended unexpectedly")
