"""Receiving whole frames and sending lists of buffers, over kafka.net's transports.

kafka-python reads 4 KiB at a time and copies each response about four times. Here a response is received straight into
a buffer of its own size and decoded from a memoryview of it; the buffers of a request are never joined. Refused: larger
reads alone (measured: the copies cost more than the system calls).
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import ssl
import struct
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from kafka.errors import InvalidReceiveError, KafkaConnectionError, KafkaProtocolError
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from sparkrelay.errors import AuthenticationException

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)

#: Smaller responses come from the C library's allocator.
_KEPT_FROM_BYTES: Final = 1024 * 1024
#: One that is being decoded, one that is arriving.
_KEPT_BUFFERS: Final = 2
#: Buffers in a system call; Linux takes 1,024.
_GATHERED = 64
#: The first bytes of a TLS port's answer to plain text: an alert of TLS 1.0 to 1.3.
_TLS_ALERT: Final = b"\x15\x03"
#: Other sockets get their turn after this much from one.
_READ_TURN_BYTES: Final = 8 * 1024 * 1024
_INT32: Final = struct.Struct(">i")


class _FrameBuffers:
    """Memory for large responses, reused once it is no longer referenced.

    Fresh memory costs the kernel 0.15 s of CPU a GB (it zeroes each page), about a third of receiving. A view of a
    response keeps a reference to its buffer, so the reference count shows whether the buffer is free.
    """

    def __init__(self) -> None:
        self._kept: list[np.ndarray[Any, np.dtype[np.uint8]]] = []

    def take(self, size: int) -> memoryview:
        """Return ``size`` bytes of uninitialised memory."""
        if size < _KEPT_FROM_BYTES:
            # numpy does not initialise it; bytearray would write zeros.
            return np.empty(size, np.uint8).data
        for index, kept in enumerate(map(len, self._kept)):
            if size <= kept <= 4 * size and _references(self._kept, index) == _UNUSED:
                return self._kept[index][:size].data
        buffer = np.empty(size + size // 8, np.uint8)
        if len(self._kept) == _KEPT_BUFFERS:
            del self._kept[0]
        self._kept.append(buffer)
        return buffer[:size].data


def _references(buffers: list[np.ndarray[Any, np.dtype[np.uint8]]], index: int) -> int:
    return sys.getrefcount(buffers[index])


#: References to an unused buffer, counted by the same code: some versions of Python hold one for each variable and
#: argument, 3.14 does not.
_UNUSED: Final = _references([np.empty(1, np.uint8)], 0)


class _FramedTransport:
    """A mixin for kafka.net's transports that receives whole frames and sends lists of buffers.

    Small responses are cut out of a scratch buffer, shared by all connections of the loop, so that one system call may
    bring many. A response that is not complete gets a buffer of exactly its size, into which the rest is received.
    """

    _sock: Any
    _net: Any
    _protocol: Any
    _closed: bool
    _read: bool
    _write: bool
    _writing: bool
    _write_buffer: Any
    _drain_fully = False

    def __init__(self, *args: Any, max_frame_bytes: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._max_frame_bytes = max_frame_bytes
        self._answered = self._ending = False
        self._start = b""  # the beginning of a frame without its whole length
        self._buffers = _FrameBuffers()
        self._frame: memoryview | None = None
        self._filled = 0

    def resume_reading(self) -> None:
        """Receive until the connection is closed: kafka.net never pauses."""
        if not self._read:
            self._read = True
            self._net.receive(self._sock, self._readable)

    def _readable(self) -> None:
        if self._ending:
            return
        try:
            self._receive()
        except (OSError, KafkaConnectionError) as error:
            # A broker that refuses a login answers why and hangs up. The waiter for that answer must run first.
            self._ending, reason = True, self._describe(error)
            self._net.call_soon(lambda: self.abort(reason))  # type: ignore[attr-defined]
        except (KafkaProtocolError, AuthenticationException) as error:
            self.abort(error)  # type: ignore[attr-defined]
        except Exception as problem:  # noqa: BLE001 - the waiting requests get it
            # Each further answer would be taken for the one before it.
            _log.exception("a broker's answer could not be handled")
            why = KafkaProtocolError(f"an answer could not be handled: {problem!r}")
            why.__cause__ = problem
            self.abort(why)  # type: ignore[attr-defined]

    def _describe(self, error: Exception) -> Exception:
        if isinstance(error, KafkaConnectionError):
            return error  # type: ignore[no-any-return]
        described: Exception = KafkaConnectionError(f"receiving failed: {error}")
        return described

    def _receive(self) -> None:
        budget = _READ_TURN_BYTES
        while self._read and not self._closed:
            if self._frame is not None:
                room = self._frame[self._filled :]
            else:
                held = len(self._start)
                self._net.scratch[:held] = self._start
                room = self._net.scratch[held:]
            try:
                count = self._sock.recv_into(room)
            except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            if count == 0:
                raise KafkaConnectionError("the broker closed the connection")
            self.last_read = time.monotonic()
            if self._frame is not None:
                self._filled += count
                if self._filled == len(self._frame):
                    frame, self._frame = self._frame, None
                    self._protocol.data_received(frame)
            else:
                self._cut(len(self._start) + count)
            budget -= count
            # TLS may hold decrypted bytes that select() does not see, so it is read until it has none.
            if self._drain_fully:
                if budget <= 0 and not self._sock.pending():
                    return
            elif count < len(room) or budget <= 0:
                return

    def _cut(self, end: int) -> None:
        """Pass on the whole frames in the scratch buffer up to ``end`` and keep the rest."""
        scratch, pos = self._net.scratch, 0
        self._start = b""
        while end - pos >= 4:
            (size,) = _INT32.unpack_from(scratch, pos)
            if not self._answered and bytes(scratch[pos : pos + 2]) == _TLS_ALERT:
                raise AuthenticationException(
                    "the port speaks TLS: set security.protocol to SSL, or to SASL_SSL if it requires a login"
                )
            self._answered = True
            if not 0 <= size <= self._max_frame_bytes:
                raise InvalidReceiveError(
                    f"a response of {size} bytes was announced; receive.message.max.bytes={self._max_frame_bytes}. "
                    "Either that is too small, or the port does not speak Kafka's protocol (or speaks TLS)"
                )
            have = end - pos - 4
            frame = self._buffers.take(size)
            if have < size:
                frame[:have] = scratch[pos + 4 : end]
                self._frame, self._filled = frame, have
                return
            frame[:] = scratch[pos + 4 : pos + 4 + size]
            pos += 4 + size
            self._protocol.data_received(frame)
            if self._closed:
                return
        if pos < end:
            self._start = bytes(scratch[pos:end])

    def write(self, data: Any) -> None:
        """Send one buffer or a list of them, at once if the socket has room."""
        if not self._write or self._closed:
            raise RuntimeError("Transport closed for writes")
        if isinstance(data, list):
            self._write_buffer.extend(data)
        else:
            self._write_buffer.append(data)
        if self._writing:
            return
        # Waiting for the selector first would cost every request two more turns of the loop.
        self._send_now()
        if self._write_buffer:
            self._writing = True
            self._write_task = self._net.call_soon(self._write_to_sock)  # type: ignore[attr-defined]

    def _send_now(self) -> None:
        """Send what the socket takes at once; the writing task handles errors, because the caller is in ``send``."""


class PlainTransport(_FramedTransport, KafkaTCPTransport):  # type: ignore[misc]
    """Frames over TCP."""

    def _send_now(self) -> None:
        with contextlib.suppress(OSError):
            self._gather()

    def _sock_send(self) -> tuple[int, Exception | None]:
        # Called by kafka.net's writing task when the socket has room.
        if self._sock is None:
            return 0, KafkaConnectionError("the connection was closed while sending")
        try:
            return self._gather(), None
        except OSError as error:
            return 0, KafkaConnectionError(f"sending failed: {error}")

    def _gather(self) -> int:
        """Send many buffers in each system call; return the number of bytes."""
        total, buffer = 0, self._write_buffer
        while buffer:
            try:
                sent = self._sock.sendmsg(list(itertools.islice(buffer, _GATHERED)))
            except (BlockingIOError, InterruptedError):
                break
            total += sent
            while sent:
                head = buffer[0]
                if sent < len(head):
                    buffer[0] = memoryview(head)[sent:]
                    break
                sent -= len(head)
                buffer.popleft()
        return total


class TlsTransport(_FramedTransport, KafkaSSLTransport):  # type: ignore[misc]
    """Frames over TLS, sent by the writing task: a half-sent TLS record must be repeated from the same buffer."""

    _drain_fully = True

    def __init__(self, *args: Any, explain: Callable[[ssl.SSLError], str | None], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._explain = explain

    def _describe(self, error: Exception) -> Exception:
        # In TLS 1.3 the client is done before the server has checked its certificate, so a refusal arrives instead of
        # the first answer.
        if isinstance(error, ssl.SSLError) and not self._answered and (meaning := self._explain(error)) is not None:
            return AuthenticationException(meaning)
        described: Exception = super()._describe(error)
        return described
