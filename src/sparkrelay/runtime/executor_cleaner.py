"""Cleaning up a slot on an executor's host: when is decided here, as for any slot; what goes is removed there."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sparkrelay.errors import SparkRelayError
from sparkrelay.runtime.cleaner import Cleaner
from sparkrelay.runtime.place import ExecutorLost
from sparkrelay.state.obsolete import ABANDONED_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from sparkrelay.runtime.executor_slot import ExecutorSlot

__all__ = ["ExecutorCleaner"]

log = logging.getLogger(__name__)


class ExecutorCleaner(Cleaner):
    """A cleaner whose slot is elsewhere. A look costs a small Spark job, at most once a minute by default."""

    def __init__(self, slot: ExecutorSlot, *, delay_seconds: float, now: float) -> None:
        super().__init__(slot.path, delay_seconds=delay_seconds, now=now)
        self._there = slot

    def _remove(self, before: float, now: float) -> list[Path]:
        try:
            return self._there.remove_obsolete(frozenset(self._seen), before, min(before, now - ABANDONED_SECONDS))
        except ExecutorLost:
            raise
        except SparkRelayError as error:
            # It costs disk, no correctness; the next look tries again.
            log.warning("cleaning up below %s failed: %s", self._slot.parent, error)
            return []
