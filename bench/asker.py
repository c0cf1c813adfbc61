"""Asks instances over HTTP, so many questions a second, from a thread of its own.

Questions are due at equal steps, whether those before them were answered or not; what counts is the time from when one
was due to the end of its answer. So an instance that stands still for a while is not asked more gently for it.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import defaultdict
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
        #: Port -> connections without a question.
        self._idle: defaultdict[int, list[_Connection]] = defaultdict(list)
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
        for connection in itertools.chain.from_iterable(self._idle.values()):
            connection.close()

    async def _ask(self, port: int, path: str, due: float) -> None:
        connection = None
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                while self._idle[port]:
                    connection = self._idle[port].pop()
                    if connection.stays:
                        break
                    connection = None
                connection = connection or await _Connection.to(port)
                status = await connection.status(path)
        except (OSError, EOFError, ValueError, KeyError):
            if connection is not None:
                connection.close()
            self.unanswered += 1
            await asyncio.sleep(_PAUSE_S)
            return
        self._idle[port].append(connection)
        if status in _ANSWERED:
            self._waits.append(time.perf_counter() - due)
        else:
            self.unanswered += 1


def is_there(port: int, path: str) -> bool:
    """Return whether the instance at a port answers a question by itself, and asks no other one."""
    return asyncio.run(_asked_once(port, path)) in _ANSWERED


async def _asked_once(port: int, path: str) -> int:
    connection = await _Connection.to(port)
    try:
        return await connection.status(path, "SparkRelay-Forwarded: bench\r\n")
    finally:
        connection.close()


class _Connection:
    """One that stays open, as the pools of HTTP clients keep them."""

    def __init__(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.port = port
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, port: int) -> Self:
        return cls(port, *await asyncio.open_connection("127.0.0.1", port))

    @property
    def stays(self) -> bool:
        """Whether the instance has not closed it, as it does after some seconds of silence."""
        return not (self._reader.at_eof() or self._writer.is_closing())

    def close(self) -> None:
        self._writer.close()

    async def status(self, path: str, header: str = "") -> int:
        """Ask, and return the status of the answer, once all of it is here."""
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n{header}\r\n".encode())
        head = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines if line)
        await self._reader.readexactly(int(headers["content-length"]))
        if headers.get("connection") == "close":
            self.close()
        return int(first.split(maxsplit=2)[1])
