"""Asks instances over HTTP, so many questions a second, from a thread of its own.

Questions are due at equal steps, whether those before them were answered or not; what counts is the time from when one
was due to the end of its answer. So an instance that stands still for a while is not asked more gently for it.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bench.children import BenchError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Asker", "is_there"]

_TIMEOUT_S = 10.0
#: More questions under way than an instance takes connections are refused, and would be answered at once.
_MOST_AT_A_TIME = 48
#: After nobody has answered: an instance that starts is not to be kept from it.
_PAUSE_S = 0.1
_ANSWERED = (200, 404)


class Asker:
    """Asks while the context is open.

    Args:
        questions: port and path of each, asked in turn.
        rate: questions a second.
    """

    def __init__(self, questions: Sequence[tuple[int, str]], *, rate: int) -> None:
        self._questions = itertools.cycle(questions)
        self._rate = rate
        self._over = threading.Event()
        self._waits: list[float] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="bench-asker", daemon=True)
        self.unanswered = 0

    def forget(self) -> None:
        """Measure from now on."""
        self._waits, self.unanswered = [], 0

    def figures(self) -> dict[str, Any]:
        """Return what was measured.

        Raises:
            BenchError: nothing was.
        """
        if not self._waits:
            raise BenchError("no question was answered")
        p50, p99, worst = np.percentile(np.array(self._waits) * 1000, (50, 99, 100))
        return {
            "p50_ms": round(float(p50), 1),
            "p99_ms": round(float(p99), 1),
            "max_ms": round(float(worst), 1),
            "answers": len(self._waits),
            "unanswered": self.unanswered,
        }

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    async def _run(self) -> None:
        under_way: set[asyncio.Task[None]] = set()
        due = time.perf_counter()
        while not self._over.is_set():
            now = time.perf_counter()
            while due <= now and len(under_way) < _MOST_AT_A_TIME:
                task = asyncio.create_task(self._ask(*next(self._questions), due))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                due += 1 / self._rate
            await asyncio.sleep(max(0.0005, due - time.perf_counter()))
        await asyncio.gather(*under_way)

    async def _ask(self, port: int, path: str, due: float) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                status = await _status(port, path)
        except (OSError, ValueError):
            self.unanswered += 1
            await asyncio.sleep(_PAUSE_S)
            return
        if status in _ANSWERED:
            self._waits.append(time.perf_counter() - due)
        else:
            self.unanswered += 1


def is_there(port: int, path: str) -> bool:
    """Return whether the instance at a port answers a question by itself, and asks no other one."""
    return asyncio.run(_status(port, path, "SparkRelay-Forwarded: bench\r\n")) in _ANSWERED


async def _status(port: int, path: str, header: str = "") -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{header}\r\n".encode())
        answer = await reader.read()
        return int(answer.split(maxsplit=2)[1]) if answer else 0
    finally:
        writer.close()
