"""The settings a connection to Kafka needs, spelt as Python users know them (librdkafka's names).

Java's truststore and keystore keys are not accepted: they name JKS files, which Python cannot read. Unknown keys are
errors that name the nearest known key, so that a typing mistake never becomes a silent default.
"""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ClientConfig"]

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How to reach a cluster. Field names are the dotted keys with underscores; times are in milliseconds.

    Attributes:
        bootstrap_servers: ``host:port,host:port``: where to ask for the cluster's brokers.
        client_id: name shown in the broker's logs and quotas.
        request_timeout_ms: how long one request may stay unanswered before its connection is given up.
        reconnect_backoff_ms: first pause after a lost or refused connection; doubles up to the maximum.
        reconnect_backoff_max_ms: longest such pause.
        retry_backoff_ms: first pause before a refused request is repeated; doubles up to the maximum.
        retry_backoff_max_ms: longest such pause.
        socket_connection_setup_timeout_ms: how long connecting, TLS and SASL together may take.
        connections_max_idle_ms: idle connections are closed after this.
        receive_message_max_bytes: largest response accepted; a bigger one means a broken stream.
        receive_buffer_bytes: size of the operating system's receive buffer, -1 for its own choice.
        send_buffer_bytes: size of the operating system's send buffer, -1 for its own choice.
        max_request_size: largest Produce request we build, in bytes.
        delivery_timeout_ms: how long the producer retries before it gives up.
    """

    bootstrap_servers: str
    client_id: str = "sparkrelay"
    request_timeout_ms: int = 30_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    socket_connection_setup_timeout_ms: int = 10_000
    connections_max_idle_ms: int = 540_000
    receive_message_max_bytes: int = 1_000_000_000
    receive_buffer_bytes: int = -1
    send_buffer_bytes: int = -1
    max_request_size: int = 1_048_576
    delivery_timeout_ms: int = 120_000
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    sasl_username: str | None = field(default=None, repr=False)
    sasl_password: str | None = field(default=None, repr=False)
    sasl_kerberos_service_name: str = "kafka"
    ssl_ca_location: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_crl_location: str | None = None
    ssl_endpoint_identification_algorithm: str = "https"

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            value = getattr(self, name)
            if kind is int and value < 0 and not name.endswith("_buffer_bytes"):
                raise ConfigException(f"{_dotted(name)}={value} must not be negative")
        if not self.servers():
            raise ConfigException("bootstrap.servers is empty; give host:port of at least one broker")
        if self.security_protocol not in _PROTOCOLS:
            raise ConfigException(f"security.protocol={self.security_protocol!r} is none of {', '.join(_PROTOCOLS)}")
        if self.ssl_endpoint_identification_algorithm not in {"https", "none", ""}:
            raise ConfigException(
                "ssl.endpoint.identification.algorithm="
                f"{self.ssl_endpoint_identification_algorithm!r} is neither 'https' nor 'none'"
            )
        if self.security_protocol.startswith("SASL"):
            self._check_sasl()

    def _check_sasl(self) -> None:
        if self.sasl_mechanism not in _MECHANISMS:
            raise ConfigException(
                f"sasl.mechanism={self.sasl_mechanism!r} is none of {', '.join(_MECHANISMS)}, "
                f"and security.protocol={self.security_protocol} needs one"
            )
        if self.sasl_mechanism != "GSSAPI" and (self.sasl_username is None or self.sasl_password is None):
            raise ConfigException(f"sasl.mechanism={self.sasl_mechanism} needs sasl.username and sasl.password")

    @classmethod
    def from_dict(cls, config: Mapping[str, object]) -> Self:
        """Read dotted keys, such as ``{"bootstrap.servers": "localhost:9092"}``.

        Raises:
            ConfigException: a key is unknown (the nearest known one is named), or a value is malformed.
        """
        values: dict[str, object] = {}
        for key, value in config.items():
            name = _ALIASES.get(key, key).replace(".", "_")
            if name not in _KINDS or "_" in key:
                raise ConfigException(f"unknown setting {key!r} of the Kafka client{_nearest(key)}")
            values[name] = _convert(key, value, _KINDS[name])
        if "bootstrap_servers" not in values:
            raise ConfigException("bootstrap.servers is missing; give host:port of at least one broker")
        return cls(**values)  # type: ignore[arg-type]

    @classmethod
    def keys(cls) -> frozenset[str]:
        """Return every dotted key that ``from_dict`` takes."""
        return frozenset(_dotted(name) for name in _KINDS) | _ALIASES.keys()

    def to_dict(self) -> dict[str, object]:
        """Return the dotted keys that differ from the defaults, so that a worker process can rebuild the value."""
        return {
            _dotted(f.name): getattr(self, f.name)
            for f in dataclasses.fields(self)
            if getattr(self, f.name) != f.default
        }

    def servers(self) -> tuple[tuple[str, int], ...]:
        """Return the bootstrap servers as (host, port).

        Raises:
            ConfigException: an entry is not ``host:port``.
        """
        result = []
        for entry in self.bootstrap_servers.split(","):
            text = entry.strip().rpartition("://")[2]
            if not text:
                continue
            host, colon, port = text.rpartition(":")
            if not colon or not port.isdecimal() or not 0 < int(port) < 65536 or not host:
                raise ConfigException(
                    f"bootstrap.servers={self.bootstrap_servers!r}: {entry.strip()!r} is not host:port, such as "
                    "localhost:9092"
                )
            result.append((host.strip("[]"), int(port)))
        return tuple(result)


def _dotted(name: str) -> str:
    return name.replace("_", ".")


_KINDS: Final = {
    # Annotations are strings here (PEP 563); the only two kinds are int and str.
    f.name: int if f.type == "int" else str
    for f in dataclasses.fields(ClientConfig)
}
_ALIASES: Final = {
    "sasl.mechanisms": "sasl.mechanism",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "message.max.bytes": "max.request.size",
}


def _nearest(key: str) -> str:
    close = difflib.get_close_matches(key.replace("_", "."), sorted(ClientConfig.keys()), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def _convert(key: str, value: object, kind: type) -> object:
    if kind is str:
        if isinstance(value, list | tuple):
            return ",".join(str(item) for item in value)
        if isinstance(value, str):
            return value.strip() if key != "sasl.password" else value
        if value is None:
            return None
    elif isinstance(value, str):
        try:
            return int(value.strip())
        except ValueError:
            pass
    elif isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ConfigException(f"{key}={value!r} is not a valid {'number' if kind is int else 'string'}")
