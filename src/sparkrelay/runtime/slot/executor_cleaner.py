"""Cleaning up a slot on an executor's host: the driver decides when, a small Spark job removes.

The job may queue for a core behind a long batch, so a thread of its own waits for it. A subscription that is about to
report the copies (KIP-441's mutex) cancels it.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from sparkrelay.errors import SparkRelayError
from sparkrelay.runtime.slot.cleaner import Cleaner
from sparkrelay.runtime.spark.cancelling import cancel_until
from sparkrelay.state.home.obsolete import ABANDONED_SECONDS

if TYPE_CHECKING:
    from collections.abc import Hashable
    from pathlib import Path

    from sparkrelay.runtime.slot.executor_slot import ExecutorSlot
    from sparkrelay.types import TaskId

log = logging.getLogger(__name__)


class ExecutorCleaner(Cleaner):
    """A cleaner of a remote slot. A check costs a small Spark job, by default at most once a minute."""

    def __init__(self, slot: ExecutorSlot, *, delay_seconds: float, now: float) -> None:
        super().__init__(slot.path, delay_seconds=delay_seconds, now=now)
        self._remote_slot = slot
        self._removal: threading.Thread | None = None

    def reported(self, who: Hashable) -> None:
        """Stop removals before a subscription reports the local copies; returns once none is in progress."""
        super().reported(who)
        self._end_removal()

    def close(self) -> None:
        """End a removal in progress."""
        self._end_removal()

    def _remove(self, before: float, now: float) -> list[Path]:
        if self._removal is None or not self._removal.is_alive():
            arguments = frozenset(self._seen), before, min(before, now - ABANDONED_SECONDS)
            self._removal = threading.Thread(
                target=self._clean, args=arguments, name="sparkrelay-cleaning", daemon=True
            )
            self._removal.start()
        return []

    def _clean(self, kept: frozenset[TaskId], before: float, abandoned_before: float) -> None:
        try:
            self._remote_slot.remove_obsolete(kept, before, abandoned_before)
        except SparkRelayError as error:
            # Costs only disk space; the next check retries. Others notice a lost executor.
            log.info("cleaning up below %s failed: %s", self._slot.parent, error)

    def _end_removal(self) -> None:
        removal = self._removal
        if removal is None or not removal.is_alive():
            return

        def ended(seconds: float) -> bool:
            removal.join(seconds)
            return not removal.is_alive()

        if not cancel_until(ended, self._remote_slot.cancel_removal):
            log.warning("Spark did not cancel the job that cleans up below %s", self._slot.parent)
