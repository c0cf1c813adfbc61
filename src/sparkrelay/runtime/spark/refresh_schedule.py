"""When to collect a DataFrame again."""

from __future__ import annotations

from typing import Final

from sparkrelay.client.backoff import Backoff

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0


class RefreshSchedule:
    """Decides when rows are too old. Pure: the time is an argument, seconds since any moment.

    A failed refresh is retried with growing pauses, and the old rows remain in use: a source may be away for a moment.
    After failing for ``every``, the largest age of rows, they are no longer used.
    """

    def __init__(self, every: float, now: float) -> None:
        self.every = every
        self._collected_at = now
        self._next = now + every
        self._failing_since: float | None = None
        self._pauses = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, jitter=0)

    def age(self, now: float) -> float:
        """Return the age of the rows in seconds."""
        return now - self._collected_at

    def due(self, now: float) -> bool:
        """Return whether to collect the rows before use."""
        return now >= self._next or self._fails_too_long(now)

    def collected(self, now: float) -> None:
        """Record a successful collection that began at ``now``."""
        self._collected_at = now
        self._next = now + self.every
        self._failing_since = None
        self._pauses.reset()

    def failed(self, now: float) -> bool:
        """Record a failed collection; return whether the old rows must no longer be used."""
        if self._failing_since is None:
            self._failing_since = now
        self._next = now + min(self._pauses.next(), self.every)
        return self._fails_too_long(now)

    def _fails_too_long(self, now: float) -> bool:
        return self._failing_since is not None and now - self._failing_since >= self.every
