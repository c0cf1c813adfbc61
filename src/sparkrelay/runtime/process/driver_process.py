"""The one process of a ``local[N]`` session, on the driver."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from sparkrelay.runtime.contract.host_metadata import HostMetadata
from sparkrelay.runtime.process.process_threads import ProcessThreads, overdue, release
from sparkrelay.runtime.slot.cleaner import Cleaner
from sparkrelay.runtime.spark.start_workers import start_workers
from sparkrelay.state import Slot

if TYPE_CHECKING:
    from sparkrelay.runtime.process.context import RuntimeContext
    from sparkrelay.runtime.spark.executor_target import ExecutorTarget
    from sparkrelay.runtime.thread.stream_thread import StreamThread


class DriverProcess:
    """The process of an instance, with the interface of :class:`ExecutorProcesses`."""

    def __init__(self, context: RuntimeContext, target: ExecutorTarget) -> None:
        self._context = context
        self._target = target
        #: One process once built.
        self.all: list[ProcessThreads] = []
        self._tidying = threading.Lock()
        start_workers(target)

    #: Nothing but ``blocked`` can be wrong with the driver's process.
    trouble = ""

    @property
    def blocked(self) -> str:
        """Why no work is done; empty if all is well."""
        return overdue([self._target], self._context.config)

    def build(self) -> None:
        """Claim the slot and make the threads.

        Raises:
            StateStoreException: ``state.dir`` cannot be used.
            KafkaException: the broker does not answer.
        """
        config = self._context.config
        slot = Slot.claim(config.state_dir, config.application_id)
        cleaner = Cleaner(slot.path, delay_seconds=config.state_cleanup_delay_ms / 1000, now=time.time())
        here = HostMetadata.here()
        self.all = [ProcessThreads(self._context, self._target, slot, cleaner, here, plans=self._context.checked)]

    def start(self) -> None:
        """Start the threads."""
        for process in self.all:
            process.start()

    def stop(self) -> None:
        """Ask all threads to end; returns at once."""
        for process in self.all:
            process.stop()

    def add_thread(self) -> str | None:
        """Add a stream thread; see :meth:`ProcessThreads.add_thread`."""
        return next((process.add_thread() for process in self.all), None)

    def remove_thread(self) -> StreamThread | None:
        """Remove a stream thread; see :meth:`ProcessThreads.remove_thread`."""
        return next((process.remove_thread() for process in self.all), None)

    def lost(self, thread: StreamThread, error: Exception) -> bool:  # noqa: ARG002 - as ExecutorProcesses
        """Return False: the driver has no executor to lose."""
        return False

    def tidy(self) -> bool:
        """Release the process if it has ended; return True then."""
        # One at a time: the user may restart once this returns True, so everything must be released.
        with self._tidying:
            for process in self.all:
                process.take_out_removed()
            ended = all(process.ended for process in self.all)
            for process in self.all if ended else ():
                release(process)
            return ended

    def give_up_unstarted(self) -> None:
        """Release the threads that were never started."""
        for process in self.all:
            process.give_up_unstarted()

    def discard(self) -> None:
        """Undo :meth:`build` without a start."""
        processes, self.all = self.all, []
        for process in processes:
            process.discard()
