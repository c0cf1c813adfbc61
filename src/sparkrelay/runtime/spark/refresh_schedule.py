"""When a DataFrame that was collected is collected again."""

from __future__ import annotations

from typing import Final

from sparkrelay.client.backoff import Backoff

__all__ = ["RefreshSchedule"]

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0


class RefreshSchedule:
    """Decides when rows are too old, and how long old ones will do. Pure: it is given the time.

    A refresh that fails is tried again with growing pauses, and old rows do meanwhile: a source may be away for a
    moment. Once that has gone on for as long as rows may be old, they do no more.

    Args:
        every: seconds that rows may be old.
        now: when they were collected for the first time, seconds from anywhere.
    """

    def __init__(self, every: float, now: float) -> None:
        self.every = every
        self._collected_at = now
        self._next = now + every
        self._failing_since: float | None = None
        self._pauses = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, jitter=0)

    def age(self, now: float) -> float:
        """Return how many seconds old the rows are."""
        return now - self._collected_at

    def due(self, now: float) -> bool:
        """Return whether the rows are to be collected before they are used."""
        return now >= self._next or self._fails_too_long(now)

    def collected(self, now: float) -> None:
        """Note that the rows were collected, and when that began."""
        self._collected_at = now
        self._next = now + self.every
        self._failing_since = None
        self._pauses.reset()

    def failed(self, now: float) -> bool:
        """Note that they could not be collected; return whether the old ones do no more."""
        if self._failing_since is None:
            self._failing_since = now
        self._next = now + min(self._pauses.next(), self.every)
        return self._fails_too_long(now)

    def _fails_too_long(self, now: float) -> bool:
        return self._failing_since is not None and now - self._failing_since >= self.every
