"""One connection to one broker: kafka-python's state machine with our parser, over the transports of ``frames``.

kafka-python handles ApiVersions, SASL, re-authentication, throttling and request timers well. Its internals move
between minor versions, hence the pin in pyproject.toml; only modules of this package import ``kafka.net``. Refused:
replacing kafka.net altogether (SASL, TLS and KIP-368 would be ours to maintain).
"""

from __future__ import annotations

import functools
import logging
import socket
import struct
import time
from typing import TYPE_CHECKING, Any, Final

from kafka.errors import (
    CorrelationIdError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaProtocolError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from kafka.future import Future
from kafka.net.connection import KafkaConnection
from kafka.protocol.api_header import RequestHeader
from kafka.protocol.parser import KafkaProtocol

from sparkrelay.client.messages.fetch_response import FetchResponse
from sparkrelay.errors import KafkaException

if TYPE_CHECKING:
    from sparkrelay.client.config import ClientConfig
    from sparkrelay.client.transport.oauth import TokenSource

# kafka.net reports each lost or refused connection at ERROR, with a traceback. A broker that restarts is ordinary and
# is reported once by KafkaClient, so these loggers are silenced unless somebody has set their level.
_kafka_net_log = logging.getLogger("kafka.net")
if _kafka_net_log.level == logging.NOTSET:
    _kafka_net_log.setLevel(logging.CRITICAL)

#: Senders bound their requests in flight; see BrokerConnection.
_NO_PAUSE: Final = 1 << 30
_INT32: Final = struct.Struct(">i")
#: Size, api key, version, correlation id, length of the client id.
_REQUEST_HEAD: Final = struct.Struct(">ihhih")
_API_VERSIONS: Final = 18
# Versions are picked by subscript, which a type checker takes for generics.
_fetch_response: Any = FetchResponse


class _FrameParser(KafkaProtocol):  # type: ignore[misc]
    """kafka-python's matching of responses to requests, fed with whole frames."""

    bytes_to_send: list[Any]
    #: Number of responses.
    answers = 0

    def send_request(self, request: Any, correlation_id: int | None = None) -> int:
        """Queue a request's bytes; ``encode_parts`` of a request returns them as buffers that are never joined."""
        if correlation_id is None:
            correlation_id = int(self._next_correlation_id())
        key, version = request.API_KEY, request.API_VERSION
        encode_parts = getattr(request, "encode_parts", None)
        if encode_parts is not None:
            self.bytes_to_send.extend(list(encode_parts(correlation_id, self._client_id)))  # all of them or none
        else:
            body = request.encode()
            client_id = self._client_id.encode()
            flexible = request.flexible_version_q(version)
            size = _REQUEST_HEAD.size - 4 + len(client_id) + flexible + len(body)
            head = _REQUEST_HEAD.pack(size, key, version, correlation_id, len(client_id)) + client_id
            # A flexible header ends with its number of tagged fields: none.
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
            KafkaProtocolError: it does not answer the oldest request, or is malformed.
        """
        if not self.in_flight_requests:
            raise CorrelationIdError("a response arrived without a request")
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
    """Return the class of the answer to a request (None if unknown) and whether its header is flexible."""
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=0, client_id="")
    response_type: Any = header.get_response_class()
    if key == FetchResponse.API_KEY:
        response_type = _fetch_response[version]
    if not hasattr(response_type, "flexible_version_q"):
        return None, False
    # KIP-511: the answer to ApiVersions keeps the old header, so that any client can parse it.
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

    It has no limit on requests in flight, because kafka.net would fail further requests instead of queueing them.
    Senders bound theirs (the producer: 5, because the broker remembers five batches of a producer).
    """

    #: The source of tokens to log in with, set by the client.
    tokens: TokenSource | None = None
    #: The current step of setting the connection up, for messages.
    doing = "connecting"

    async def _sasl_authenticate(self, timeout_at: float | None = None) -> None:
        # Called by kafka.net, first and again before the session's end (KIP-368).
        self.doing = "logging in"
        try:
            if self.tokens is not None:
                await self.tokens.refresh()
            await super()._sasl_authenticate(timeout_at)
        except UnsupportedSaslMechanismError as error:
            raise UnsupportedSaslMechanismError(f"this listener does not offer that mechanism; {error}") from error
        except (ValueError, KeyError) as error:
            # SCRAM: the other side does not know what the broker must know about our password.
            raise SaslAuthenticationFailedError(f"the broker's part of the login is wrong: {error}") from error

    def send_request(self, request: Any, request_timeout_ms: float | None = None) -> Any:
        """Send a request, or queue it while the broker throttles us (quotas), where kafka.net would fail it."""
        if self.connected and self.paused and not self._reauth.is_reauthenticating:
            # The parser's queue is sent when the pause ends.
            return self._send_request(request, timeout_at=self._timeout_at(timeout_ms=request_timeout_ms))
        return super().send_request(request, request_timeout_ms=request_timeout_ms)

    def _send_request(self, request: Any, future: Any = None, timeout_at: float | None = None) -> Any:
        # Like kafka.net's, which looks the version up for each request and makes a task of each deadline.
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
        except Exception as error:  # noqa: BLE001 - its sender gets it
            # Raised here, it would reach another sender, if the request had waited for the connection.
            failure = KafkaException(f"a {request.name} cannot be encoded: {error!r}; Kafka does not take such a value")
            failure.__cause__ = error
            return future.failure(failure)
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
        """Handle the loss of the connection."""
        if (
            isinstance(exc, KafkaConnectionError)
            and self.connected
            and self.in_flight_requests
            and self.parser.answers == 1
            and not self.sasl_enabled
        ):
            # A port that requires a login answers versions to anybody, and hangs up on all else.
            exc = KafkaConnectionError(
                f"{exc.args[0] if exc.args else exc} on our first request. If it always does so, the port may require "
                f"a login, which security.protocol={self.config['security_protocol']} does not have"
            )
        super().connection_lost(exc)

    def connection_made(self, transport: Any) -> None:
        """Use a connected transport."""
        self._versions: dict[tuple[int, int | None, int | None], int] = {}
        super().connection_made(transport)
        self.parser = _FrameParser(
            client_id=self.config["client_id"],
            receive_message_max_bytes=self.config["receive_message_max_bytes"],
        )


#: A host that loses power does not close connections, and a JoinGroup may rightly be answered minutes later, but a live
#: host acknowledges probes. Seconds of silence before the first probe and between two, their number; milliseconds for
#: data that was sent.
_VANISHED: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}


def net_settings(config: ClientConfig) -> dict[str, Any]:
    """Return kafka.net's settings for ours."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    # Not on every system; without them the system's own bounds apply.
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
    """Return the user's name, escaped for SCRAM (RFC 5802, section 5.1)."""
    name = config.sasl_username
    if name is not None and (config.sasl_mechanism or "").startswith("SCRAM"):
        return name.replace("=", "=3D").replace(",", "=2C")
    return name
