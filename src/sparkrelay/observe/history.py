"""An instance's lag and throughput over the last minutes, by a bounded number of samples."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from sparkrelay.observe.named_metrics import named_metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.observe.snapshot import InstanceSnapshot

_INTERVAL_S: Final = 5.0
_KEPT: Final = 120


class History:
    """Samples of one instance, by a thread that runs until ``close``.

    ``read`` returns the current state of the instance; ``interval`` is in seconds.
    """

    def __init__(self, read: Callable[[], InstanceSnapshot], *, interval: float = _INTERVAL_S) -> None:
        self._read = read
        self._interval = interval
        self._samples: deque[tuple[float, int, int, int]] = deque(maxlen=_KEPT)
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="sparkrelay-metrics-history", daemon=True).start()

    @property
    def samples(self) -> list[tuple[float, int, int, int]]:
        """Oldest first: seconds since 1970, lag, total records, total rows written."""
        return list(self._samples)

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                now = self._read()
            except Exception:  # noqa: BLE001 - the endpoint reports the error; the next sample may succeed
                now = None
            if now is not None:
                named = named_metrics(now)
                lag, records = int(named["records-lag"]), int(named["process-total"])
                self._samples.append((round(time.time(), 3), lag, records, now.totals.rows_written))
            self._closed.wait(self._interval)
