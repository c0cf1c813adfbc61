"""Opening a client's connections (name lookup, socket, TLS), and the translation of their errors.

Separate from ``kafka_client`` because it does not deal with requests. Runs on the client's loop.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import kafka.errors
from kafka.net.inet import KafkaNetSocket

from sparkrelay.client.transport.frames import PlainTransport, TlsTransport
from sparkrelay.client.transport.off_loop import off_loop
from sparkrelay.client.transport.tls import explain
from sparkrelay.errors import (
    AuthenticationException,
    DisconnectException,
    KafkaException,
    TimeoutException,
    UnsupportedVersionException,
)

if TYPE_CHECKING:
    from sparkrelay.client.config import ClientConfig
    from sparkrelay.client.metadata import Broker
    from sparkrelay.client.transport.connection import BrokerConnection
    from sparkrelay.client.transport.loop import Loop


def broker_name(broker: Broker) -> str:
    """Return a broker's name for messages; bootstrap servers have negative ids."""
    return f"bootstrap server {broker.host}:{broker.port}" if broker.id < 0 else str(broker)


@dataclass(eq=False)
class Transports:
    """Opens the transports of a client's connections."""

    net: Loop  # the client's loop
    config: ClientConfig  # how to reach the cluster
    tls: ssl.SSLContext | None  # the context of TLS connections; None without TLS
    socket_options: Any  # in kafka-python's form

    async def open(self, connection: BrokerConnection, broker: Broker, deadline: float) -> Any:
        """Connect to a broker, including the TLS handshake, until a monotonic ``deadline``.

        ``connection.doing`` is kept up to date.

        Raises:
            AuthenticationException: TLS refused the broker or us.
            kafka.errors.KafkaConnectionError: the broker is unreachable.
        """
        sock = await self._open_socket(connection, broker, deadline)
        limit = self.config.receive_message_max_bytes
        if self.tls is None:
            return PlainTransport(self.net, sock, host=broker.host, max_frame_bytes=limit)
        connection.doing = "the TLS handshake"
        transport = TlsTransport(
            self.net,
            sock,
            host=broker.host,
            max_frame_bytes=limit,
            ssl_context=self.tls,
            explain=lambda error: self._explain(error, broker),
        )
        try:
            await transport.handshake()
        except ssl.SSLError as error:
            transport.abort()
            if (meaning := self._explain(error, broker)) is not None:
                raise AuthenticationException(meaning) from error
            # A broker that goes away during the handshake has refused nobody.
            raise kafka.errors.KafkaConnectionError(self._hung_up(error)) from error
        except OSError as error:
            transport.abort()
            raise kafka.errors.KafkaConnectionError(self._hung_up(error)) from error
        except BaseException:  # cancelled
            transport.abort()
            raise
        return transport

    async def _open_socket(self, connection: BrokerConnection, broker: Broker, deadline: float) -> Any:
        """Connect to one of the broker's addresses; they share the time (KIP-302, KIP-601)."""
        connection.doing = f"looking up the name {broker.host}"
        addresses = await self._addresses(broker)
        connection.doing = "connecting"
        error: Exception = kafka.errors.KafkaConnectionError(f"the name {broker.host} has no address")
        for tried, address in enumerate(addresses):
            now = time.monotonic()
            share = now + (deadline - now) / (len(addresses) - tried)
            try:
                return await KafkaNetSocket().connect(self.net, address, self.socket_options, timeout_at=share)
            except (OSError, kafka.errors.KafkaError) as problem:
                error = kafka.errors.KafkaConnectionError(f"cannot connect to {address[4][0]}: {problem}")
        raise error

    async def _addresses(self, broker: Broker) -> list[Any]:
        def look_up() -> list[Any]:
            return socket.getaddrinfo(broker.host, broker.port, type=socket.SOCK_STREAM)

        try:
            ipaddress.ip_address(broker.host)
        except ValueError:
            try:
                found: list[Any] = await off_loop(self.net, look_up, name=f"look-up-{broker.host}")
            except OSError as error:
                raise kafka.errors.KafkaConnectionError(
                    f"the name {broker.host} cannot be resolved: {error}"
                ) from error
            return found
        return look_up()

    def _explain(self, error: ssl.SSLError, broker: Broker) -> str | None:
        meaning = explain(error, self.config, broker.host)
        if meaning is None:
            return None
        return f"{broker_name(broker)} (security.protocol={self.config.security_protocol}): {meaning}"

    def _hung_up(self, error: OSError) -> str:
        return (
            f"the connection broke during the TLS handshake: {error}. If it always does so: is "
            f"security.protocol={self.config.security_protocol} what the port speaks?"
        )


def translate(error: Any, where: str, request: Any, config: ClientConfig) -> KafkaException:
    """Return an error of kafka-python's, or our own, as a KafkaException.

    ``where`` is the broker's name; ``request`` is None for a lost connection.
    """
    if isinstance(error, KafkaException):
        return error
    what = "" if request is None else f" ({request.name})"
    match error:
        case kafka.errors.IncompatibleBrokerVersion() | kafka.errors.UnsupportedVersionError():
            return UnsupportedVersionException(f"{where} is too old{what}: {error}")
        case (
            kafka.errors.SaslAuthenticationFailedError()
            | kafka.errors.UnsupportedSaslMechanismError()
            | kafka.errors.AuthorizationError()
        ):
            return AuthenticationException(
                f"{where} refused our credentials (security.protocol={config.security_protocol}, "
                f"sasl.mechanism={config.sasl_mechanism}, sasl.username={config.sasl_username}): {error}"
            )
        case kafka.errors.IllegalSaslStateError():
            protocol = config.security_protocol
            return AuthenticationException(
                f"{where} takes no login on this port, but security.protocol={protocol}: set it to "
                f"{protocol.removeprefix('SASL_')}, or give the port of a listener with SASL"
            )
        case kafka.errors.RequestTimedOutError() | kafka.errors.KafkaTimeoutError():
            return TimeoutException(f"{where} did not answer in time{what}: {error}")
        case _:
            lost = DisconnectException(f"connection to {where} failed{what}: {error}")
            lost.__cause__ = error
            return lost
