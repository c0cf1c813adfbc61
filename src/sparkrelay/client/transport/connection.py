"""One connection to one broker: kafka-python's state machine over our own way of receiving and sending bytes.

kafka-python does ApiVersions, SASL, re-authentication, throttling and request timers well, but it reads 4 KiB at a
time and copies each response about four times. Here a response is received straight into a buffer of its own size and
decoded from a memoryview of it; requests may consist of several buffers that are never joined. Together with ``loop``
and ``transports`` this is the only module that imports ``kafka.net``: its internals move between minor versions,
hence the pin in pyproject.toml.

Refused: replacing kafka.net altogether (SASL, TLS and KIP-368 would be ours to keep), and larger reads alone (measured:
they hardly help, the copies cost more than the system calls).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import socket
import ssl
import struct
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from kafka.errors import (
    CorrelationIdError,
    IncompatibleBrokerVersion,
    InvalidReceiveError,
    KafkaConnectionError,
    KafkaProtocolError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from kafka.future import Future
from kafka.net.connection import KafkaConnection
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.protocol.api_header import RequestHeader
from kafka.protocol.parser import KafkaProtocol

from sparkrelay.client.fetch_response import FetchResponse
from sparkrelay.errors import AuthenticationException, KafkaException

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.client.config import ClientConfig
    from sparkrelay.client.transport.oauth import TokenSource

__all__ = ["BrokerConnection", "PlainTransport", "TlsTransport", "net_settings"]

_log = logging.getLogger(__name__)

# kafka.net reports each lost or refused connection at ERROR, with a traceback. A broker that restarts is ordinary here
# and is reported once by KafkaClient, so we keep its loggers quiet unless somebody has set their level on purpose.
_kafka_net_log = logging.getLogger("kafka.net")
if _kafka_net_log.level == logging.NOTSET:
    _kafka_net_log.setLevel(logging.CRITICAL)

#: Smaller responses come from the C library's own store of memory.
_KEPT_FROM_BYTES = 1024 * 1024
#: One that is being decoded, one that is arriving.
_KEPT_BUFFERS = 2
#: Requests in flight are bounded by their senders; see BrokerConnection.
_NO_PAUSE = 1 << 30
#: Buffers in one system call; Linux takes 1,024.
_GATHERED = 64
#: How an answer begins that a TLS port gives to plain text: an alert of TLS 1.0 to 1.3.
_TLS_ALERT: Final = b"\x15\x03"
#: After this much from one socket, others get their turn.
_READ_TURN_BYTES = 8 * 1024 * 1024
_INT32 = struct.Struct(">i")
#: Size, api key, version, correlation id, length of the client id.
_REQUEST_HEAD = struct.Struct(">ihhih")
_API_VERSIONS = 18
# Versions are picked by subscript, which a type checker takes for generics.
_fetch_response: Any = FetchResponse


class _FrameBuffers:
    """Gives memory for large responses, again and again the same while nobody looks at it any more.

    Fresh memory costs the kernel 0.15 s of CPU a GB (it zeroes each page), about a third of receiving. A view of a
    response keeps a reference to its buffer, so the reference count says whether the buffer is free.
    """

    def __init__(self) -> None:
        self._kept: list[np.ndarray[Any, np.dtype[np.uint8]]] = []

    def take(self, size: int) -> memoryview:
        """Return uninitialised memory of ``size`` bytes."""
        if size < _KEPT_FROM_BYTES:
            # numpy leaves the memory as it is; bytearray would write zeros over it first.
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


#: References to a buffer that nobody uses. Counted, and by the same code: some versions of Python hold one for each
#: variable and argument, 3.14 does not.
_UNUSED: Final = _references([np.empty(1, np.uint8)], 0)


class _FramedTransport:
    """Mixed in before a kafka.net transport: receives whole frames, sends lists of buffers.

    Small responses are cut out of a scratch buffer, so that one system call may bring many; the loop has one for all
    its connections. A response that is longer than what has arrived gets a buffer of exactly its size, and the rest of
    it is received right there.
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
        self._start = b""  # the first bytes of a frame whose length has not arrived as a whole
        self._buffers = _FrameBuffers()
        self._frame: memoryview | None = None
        self._filled = 0

    def resume_reading(self) -> None:
        """Begin to receive. It stays so until the connection is closed: kafka.net never pauses."""
        if not self._read:
            self._read = True
            self._net.receive(self._sock, self._readable)

    def _readable(self) -> None:
        if self._ending:
            return
        try:
            self._receive()
        except (OSError, KafkaConnectionError) as error:
            # A broker that refuses a login says why and hangs up. Who waits for that answer must run first.
            self._ending, reason = True, self._describe(error)
            self._net.call_soon(lambda: self.abort(reason))  # type: ignore[attr-defined]
        except (KafkaProtocolError, AuthenticationException) as error:
            self.abort(error)  # type: ignore[attr-defined]
        except Exception as problem:  # noqa: BLE001 - whoever waits for an answer gets it
            # An answer short, each of the next would be taken for the one before it, and the last never come.
            _log.exception("an answer of a broker could not be taken")
            why = KafkaProtocolError(f"an answer could not be taken: {problem!r}")
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
            # TLS may hold decrypted bytes that select() cannot see, so it is read until it has none.
            if self._drain_fully:
                if budget <= 0 and not self._sock.pending():
                    return
            elif count < len(room) or budget <= 0:
                return

    def _cut(self, end: int) -> None:
        """Hand on the whole frames in the scratch buffer up to ``end`` and keep the rest."""
        scratch, pos = self._net.scratch, 0
        self._start = b""
        while end - pos >= 4:
            (size,) = _INT32.unpack_from(scratch, pos)
            if not self._answered and bytes(scratch[pos : pos + 2]) == _TLS_ALERT:
                raise AuthenticationException(
                    "the port speaks TLS and we do not: set security.protocol to SSL, or SASL_SSL if it wants a login"
                )
            self._answered = True
            if not 0 <= size <= self._max_frame_bytes:
                raise InvalidReceiveError(
                    f"a response of {size} bytes was announced; receive.message.max.bytes={self._max_frame_bytes}. "
                    "Either that is too small or the other side does not speak Kafka's protocol (or TLS is on there)"
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
        """Send one buffer or a list of them; goes out at once if the socket has room."""
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
        """Send what the socket takes at once. Errors are left to the writing task: the caller is still in ``send``."""


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
        """Send many buffers in each system call; return how many bytes went."""
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
    """Frames over TLS. The writing task sends: a TLS record that is half sent must be repeated from the same buffer."""

    _drain_fully = True

    def __init__(self, *args: Any, explain: Callable[[ssl.SSLError], str | None], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._explain = explain

    def _describe(self, error: Exception) -> Exception:
        # In TLS 1.3 the client is done before the server has looked at its certificate: the refusal is what comes
        # instead of the first answer.
        if isinstance(error, ssl.SSLError) and not self._answered and (meaning := self._explain(error)) is not None:
            return AuthenticationException(meaning)
        described: Exception = super()._describe(error)
        return described


class _FrameParser(KafkaProtocol):  # type: ignore[misc]
    """kafka-python's correlation of requests and responses, fed with whole frames."""

    bytes_to_send: list[Any]
    #: Responses that came.
    answers = 0

    def send_request(self, request: Any, correlation_id: int | None = None) -> int:
        """Queue a request's bytes; one with ``encode_parts`` gives them as a list of buffers that is never joined."""
        if correlation_id is None:
            correlation_id = int(self._next_correlation_id())
        key, version = request.API_KEY, request.API_VERSION
        encode_parts = getattr(request, "encode_parts", None)
        if encode_parts is not None:
            request.with_header(correlation_id=correlation_id, client_id=self._client_id)
            self.bytes_to_send.extend(list(encode_parts()))  # all of them or none
        else:
            body = request.encode()
            client_id = self._client_id.encode()
            flexible = request.flexible_version_q(version)
            size = _REQUEST_HEAD.size - 4 + len(client_id) + flexible + len(body)
            head = _REQUEST_HEAD.pack(size, key, version, correlation_id, len(client_id)) + client_id
            # The end of a flexible header is its number of tagged fields: none.
            self.bytes_to_send.append(b"".join((head, b"\0" if flexible else b"", body)))
        if request.expect_response():
            self.in_flight_requests.append((correlation_id, key, version))
        return correlation_id

    def send_bytes(self) -> list[Any]:
        """Return the queued buffers."""
        parts, self.bytes_to_send = self.bytes_to_send, []
        return parts

    def receive_bytes(self, data: Any) -> list[tuple[int, Any]]:
        """Decode one whole response.

        Raises:
            KafkaProtocolError: it does not answer the oldest request, or cannot be decoded.
        """
        if not self.in_flight_requests:
            raise CorrelationIdError("a response came that no request waits for")
        expected, key, version = self.in_flight_requests.popleft()
        self.answers += 1
        response_type, flexible_header = _answer_to(key, version)
        if response_type is None:
            raise KafkaProtocolError(f"no response is known for api {key} v{version}")
        try:
            (correlation_id,) = _INT32.unpack_from(data, 0)
            if correlation_id != expected:
                raise CorrelationIdError(f"expected the answer to request {expected}, got {correlation_id}")
            start = _header_size(data) if flexible_header else 4
            return [(correlation_id, response_type.decode(data[start:]))]
        except (ValueError, IndexError, struct.error, OverflowError) as error:
            raise KafkaProtocolError(
                f"cannot decode a {len(data)}-byte answer to api {key} v{version}: {error}"
            ) from error


@functools.cache
def _answer_to(key: int, version: int) -> tuple[Any, bool]:
    """Return the class of the answer to a request (None if there is none) and whether its header is flexible."""
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=0, client_id="")
    response_type: Any = header.get_response_class()
    if key == FetchResponse.API_KEY:
        response_type = _fetch_response[version]
    if not hasattr(response_type, "flexible_version_q"):
        return None, False
    # KIP-511: the answer to ApiVersions keeps the old header, so that any client can read it.
    return response_type, key != _API_VERSIONS and response_type.flexible_version_q(version)


def _header_size(data: Any) -> int:
    """Return where the body starts: after the correlation id and the tagged fields."""
    if data[4] == 0:
        return 5
    count, pos = _uvarint(data, 4)
    for _ in range(count):
        _, pos = _uvarint(data, pos)
        size, pos = _uvarint(data, pos)
        pos += size
    return pos


def _uvarint(data: Any, pos: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, pos
        shift += 7


class BrokerConnection(KafkaConnection):  # type: ignore[misc]
    """kafka-python's connection with our parser.

    It never pauses for a number of requests in flight: kafka.net would fail further requests instead of queueing them.
    Whoever needs a bound keeps it (the producer: 5, for the broker remembers five batches a producer).
    """

    #: Gives tokens to log in with; set by whoever makes the connection.
    tokens: TokenSource | None = None
    #: What is being done to set the connection up, for messages.
    doing = "connecting"

    async def _sasl_authenticate(self, timeout_at: float | None = None) -> None:
        # Called by kafka.net, at the start and again before the session's end (KIP-368).
        self.doing = "logging in"
        try:
            if self.tokens is not None:
                await self.tokens.refresh()
            await super()._sasl_authenticate(timeout_at)
        except UnsupportedSaslMechanismError as error:
            raise UnsupportedSaslMechanismError(f"this listener does not offer that mechanism; {error}") from error
        except (ValueError, KeyError) as error:
            # SCRAM: the other side does not know what the broker must know of our password.
            raise SaslAuthenticationFailedError(f"the broker's part of the login is wrong: {error}") from error

    def send_request(self, request: Any, request_timeout_ms: float | None = None) -> Any:
        """Send a request; hold it back, where kafka.net would fail it, while the broker asks for quiet (quotas)."""
        if self.connected and self.paused and not self._reauth.is_reauthenticating:
            # What is queued in the parser goes out when the pause ends.
            return self._send_request(request, timeout_at=self._timeout_at(timeout_ms=request_timeout_ms))
        return super().send_request(request, request_timeout_ms=request_timeout_ms)

    def _send_request(self, request: Any, future: Any = None, timeout_at: float | None = None) -> Any:
        # As kafka.net's, which looks the version up anew for each request and makes a task of each deadline.
        if future is None:
            future = Future()
        if self.closed:
            return future.failure(KafkaConnectionError("closed"))
        try:
            if request.API_VERSION is None:
                request.API_VERSION = self._version_of(request)
        except IncompatibleBrokerVersion as error:
            return future.failure(error)
        sent_at = time.monotonic()
        if timeout_at is None:
            timeout_at = self._timeout_at(now=sent_at)
        if timeout_at <= sent_at:
            return future.failure(KafkaTimeoutError())
        try:
            correlation_id = self.parser.send_request(request)
        except Exception as error:  # noqa: BLE001 - whoever sent it gets it
            # Raised here, it would end whoever is sending: with a request that waited for the connection, not its own.
            return future.failure(_unsendable(request, error))
        if request.expect_response():
            timer = self.net.timer(timeout_at, lambda: self._request_timed_out(future, sent_at, timeout_at))
            self.in_flight_requests.append((correlation_id, future, sent_at, timeout_at, timer))
        else:
            future.success(None)
        if not self.paused:
            self.transport.write(self.parser.send_bytes())
        return future

    def _version_of(self, request: Any) -> int:
        if self.broker_version_data is None:
            raise IncompatibleBrokerVersion("the broker's versions are not known yet")
        key = request.API_KEY, request._min_version, request._max_version  # noqa: SLF001 - where kafka.net has them
        version = self._versions.get(key)
        if version is None:
            version = self._versions[key] = int(self.broker_version_data.api_version(request))
        return version

    def connection_lost(self, exc: Any) -> None:
        """Note that the connection is gone."""
        if (
            isinstance(exc, KafkaConnectionError)
            and self.connected
            and self.in_flight_requests
            and self.parser.answers == 1
            and not self.sasl_enabled
        ):
            # A port that wants a login gives its versions to anybody, and hangs up on everything else.
            exc = KafkaConnectionError(
                f"{exc.args[0] if exc.args else exc} on our first request. If it does so always: the port may want a "
                f"login, which security.protocol={self.config['security_protocol']} has not"
            )
        super().connection_lost(exc)

    def connection_made(self, transport: Any) -> None:
        """Take over a connected transport."""
        self._versions: dict[tuple[int, int | None, int | None], int] = {}
        super().connection_made(transport)
        self.parser = _FrameParser(
            client_id=self.config["client_id"],
            receive_message_max_bytes=self.config["receive_message_max_bytes"],
        )


def _unsendable(request: Any, cause: Exception) -> KafkaException:
    error = KafkaException(f"a {request.name} cannot be written: {cause!r}; a value of it is not what Kafka takes")
    error.__cause__ = cause
    return error


#: A host that loses its power says no goodbye, and a JoinGroup may be answered minutes later by right: who is there
#: acknowledges a probe. Seconds of silence before the first, between two, how many; milliseconds for what was sent.
_VANISHED: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}


def net_settings(config: ClientConfig) -> dict[str, Any]:
    """Return kafka.net's settings for ours."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    # Not on every system under these names; without them the system's own bound holds.
    options += [
        (socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in _VANISHED.items() if hasattr(socket, name)
    ]
    if config.receive_buffer_bytes >= 0:
        options.append((socket.SOL_SOCKET, socket.SO_RCVBUF, config.receive_buffer_bytes))
    if config.send_buffer_bytes >= 0:
        options.append((socket.SOL_SOCKET, socket.SO_SNDBUF, config.send_buffer_bytes))
    return {
        "client_id": config.client_id,
        "client_software_name": "sparkrelay",
        "client_software_version": "0.1.0",
        "max_in_flight_requests_per_connection": _NO_PAUSE,
        "receive_message_max_bytes": config.receive_message_max_bytes,
        "request_timeout_ms": config.request_timeout_ms,
        "security_protocol": config.security_protocol,
        "sasl_mechanism": config.sasl_mechanism,
        "sasl_plain_username": _user(config),
        "sasl_plain_password": config.sasl_password,
        "sasl_kerberos_service_name": config.sasl_kerberos_service_name,
        "socket_options": options,
    }


def _user(config: ClientConfig) -> str | None:
    """Return the user's name; SCRAM has its own meaning for comma and equals sign (RFC 5802, section 5.1)."""
    name = config.sasl_username
    if name is not None and (config.sasl_mechanism or "").startswith("SCRAM"):
        return name.replace("=", "=3D").replace(",", "=2C")
    return name
