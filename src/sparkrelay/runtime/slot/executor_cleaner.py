"""Cleaning up a slot on an executor's host: when is decided here, as for any slot; what goes is removed there.

That is a small Spark job, which may wait for a core behind a long batch. So it runs on a thread of its own, while the
stream threads serve the group; a subscription that is about to report the copies (KIP-441's mutex) cancels it.
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

__all__ = ["ExecutorCleaner"]

log = logging.getLogger(__name__)


class ExecutorCleaner(Cleaner):
    """A cleaner whose slot is elsewhere. A look costs a small Spark job, at most once a minute by default."""

    def __init__(self, slot: ExecutorSlot, *, delay_seconds: float, now: float) -> None:
        super().__init__(slot.path, delay_seconds=delay_seconds, now=now)
        self._there = slot
        self._look: threading.Thread | None = None

    def reported(self, who: Hashable) -> None:
        """A subscription is about to report the local copies; returns once nothing is being removed."""
        super().reported(who)
        self._end_look()

    def close(self) -> None:
        """End what is being done."""
        self._end_look()

    def _remove(self, before: float, now: float) -> list[Path]:
        if self._look is None or not self._look.is_alive():
            arguments = frozenset(self._seen), before, min(before, now - ABANDONED_SECONDS)
            self._look = threading.Thread(target=self._clean, args=arguments, name="sparkrelay-cleaning", daemon=True)
            self._look.start()
        return []

    def _clean(self, kept: frozenset[TaskId], before: float, abandoned_before: float) -> None:
        try:
            self._there.remove_obsolete(kept, before, abandoned_before)
        except SparkRelayError as error:
            # It costs disk, no correctness; the next look tries again. A lost executor is noticed by others.
            log.info("cleaning up below %s was not done: %s", self._slot.parent, error)

    def _end_look(self) -> None:
        look = self._look
        if look is None or not look.is_alive():
            return

        def ended(seconds: float) -> bool:
            look.join(seconds)
            return not look.is_alive()

        if not cancel_until(ended, self._there.cancel_removal):
            log.warning("Spark does not cancel the job that cleans up below %s", self._slot.parent)
