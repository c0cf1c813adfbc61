"""The settings of a connection to Kafka, under the names that Python users know (librdkafka's)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from sparkrelay.client.backoff import Backoff
from sparkrelay.client.foreign_settings import FOREIGN
from sparkrelay.errors import ConfigException
from sparkrelay.settings import (
    DECOMPRESSED_BATCH_BYTES,
    check,
    check_sent,
    host_and_port,
    read,
    setting,
    settings_of,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_REQUEST_BYTES: Final = 1_048_576
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How to reach a cluster. Field names are the dotted keys with underscores; times are in milliseconds."""

    bootstrap_servers: str = setting(
        dataclasses.MISSING,
        "HOST:PORT[,HOST:PORT...]: where to ask for the cluster's brokers",
        aliases=("metadata.broker.list",),
    )
    client_id: str = setting("sparkrelay", "name shown in the broker's logs and quotas")
    request_timeout_ms: int = setting(
        30_000,
        "a request unanswered for so long is given up, with its connection, ms",
        least=1,
        aliases=("socket.timeout.ms",),
    )
    reconnect_backoff_ms: int = setting(
        50, "first pause after a lost or refused connection; doubles up to the maximum, ms"
    )
    reconnect_backoff_max_ms: int = setting(1_000, "longest such pause, ms")
    retry_backoff_ms: int = setting(100, "first pause before a refused request is repeated; doubles, ms")
    retry_backoff_max_ms: int = setting(1_000, "longest such pause, ms")
    socket_connection_setup_timeout_ms: int = setting(
        10_000, "bound on looking up the name, connecting, TLS and SASL together, ms", least=1
    )
    connections_max_idle_ms: int = setting(
        540_000, "idle connections are closed after this, ms; 0 or -1: never", least=-1
    )
    receive_message_max_bytes: int = setting(
        1_000_000_000, "largest response accepted, bytes; a bigger one means a broken stream", least=1_024
    )
    max_decompressed_batch_bytes: int = setting(
        DECOMPRESSED_BATCH_BYTES,
        "most that one record batch may hold decompressed, bytes; a larger one is an error, for a few kB of zstd can "
        "stand for many GB",
        least=1_024,
    )
    receive_buffer_bytes: int = setting(
        -1,
        "the operating system's receive buffer, bytes; -1: its own choice",
        least=-1,
        aliases=("socket.receive.buffer.bytes",),
    )
    send_buffer_bytes: int = setting(
        -1,
        "the operating system's send buffer, bytes; -1: its own choice",
        least=-1,
        aliases=("socket.send.buffer.bytes",),
    )
    max_request_size: int = setting(_REQUEST_BYTES, "largest Produce request, bytes", aliases=("message.max.bytes",))
    delivery_timeout_ms: int = setting(
        120_000,
        "the producer retries for so long, ms; where it writes for an instance, for three quarters of its "
        "`transaction.timeout.ms` at most",
        least=1,
        aliases=("message.timeout.ms",),
    )
    security_protocol: str = setting(
        "PLAINTEXT", "how to speak to the port", choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    )
    sasl_mechanism: str | None = setting(None, "how to log in", choices=_MECHANISMS, aliases=("sasl.mechanisms",))
    sasl_username: str | None = setting(None, "user of PLAIN and SCRAM")
    sasl_password: str | None = setting(None, "password of PLAIN and SCRAM", secret=True)
    sasl_kerberos_service_name: str = setting("kafka", "GSSAPI: the service part of the broker's principal")
    oauth_cb: Callable[..., Any] | None = setting(
        None,
        'OAUTHBEARER: function of `sasl.oauthbearer.config` (or "") that returns (token, expiry in seconds since 1970'
        "[, principal[, extensions]]), as in confluent-kafka; it runs in a thread of its own",
        key="oauth_cb",
        secret=True,
    )
    sasl_oauthbearer_config: str | None = setting(None, "given to `oauth_cb`", secret=True)
    sasl_oauthbearer_method: str = setting(
        "default", "OAUTHBEARER: `oidc` fetches tokens from an endpoint", choices=("default", "oidc")
    )
    sasl_oauthbearer_token_endpoint_url: str | None = setting(None, "oidc: where tokens are issued")
    sasl_oauthbearer_client_id: str | None = setting(
        None, "oidc: who asks", aliases=("sasl.oauthbearer.client.credentials.client.id",)
    )
    sasl_oauthbearer_client_secret: str | None = setting(
        None,
        "oidc: the secret of who asks",
        aliases=("sasl.oauthbearer.client.credentials.client.secret",),
        secret=True,
    )
    sasl_oauthbearer_scope: str | None = setting(None, "oidc: scope to ask for")
    sasl_oauthbearer_extensions: str | None = setting(None, "oidc: name=value,... for the broker")
    https_ca_location: str | None = setting(
        None, "oidc: PEM file of the authorities trusted at the token endpoint; default: the system's"
    )
    ssl_ca_location: str | None = setting(
        None, "PEM file or directory of the authorities that may sign the broker's certificate; default: the system's"
    )
    ssl_ca_pem: str | None = setting(None, "the same as text", aliases=("ssl.truststore.certificates",))
    ssl_certificate_location: str | None = setting(None, "PEM file of our certificate, with its chain")
    ssl_certificate_pem: str | None = setting(None, "the same as text", aliases=("ssl.keystore.certificate.chain",))
    ssl_key_location: str | None = setting(None, "PEM file of our private key")
    ssl_key_pem: str | None = setting(None, "the same as text", secret=True, aliases=("ssl.keystore.key",))
    ssl_key_password: str | None = setting(None, "password of our private key", secret=True)
    ssl_crl_location: str | None = setting(None, "PEM file of revoked certificates")
    ssl_endpoint_identification_algorithm: str = setting(
        "https", "whether the broker's certificate must be for its host name", choices=("https", "none", "")
    )
    enable_ssl_certificate_verification: bool = setting(True, "false: believe any broker; for tests only")

    def __post_init__(self) -> None:
        check(self)
        check_sent("client.id", self.client_id)
        if not self.servers():
            raise ConfigException("bootstrap.servers is empty; give host:port of at least one broker")
        for what in ("ca", "certificate", "key"):
            if getattr(self, f"ssl_{what}_location") and getattr(self, f"ssl_{what}_pem"):
                raise ConfigException(f"ssl.{what}.location and ssl.{what}.pem exclude each other; give one")
        if self._ssl("key") and not self._ssl("certificate"):
            raise ConfigException(
                "ssl.key.* is given without ssl.certificate.location (or ssl.certificate.pem): a client certificate "
                "needs both"
            )
        if self.security_protocol.startswith("SASL"):
            self._check_sasl()

    def _ssl(self, what: str) -> bool:
        return bool(getattr(self, f"ssl_{what}_location") or getattr(self, f"ssl_{what}_pem"))

    def _check_sasl(self) -> None:
        if self.sasl_mechanism is None:
            raise ConfigException(
                f"security.protocol={self.security_protocol} needs sasl.mechanism: one of {', '.join(_MECHANISMS)}"
            )
        if self.sasl_mechanism == "OAUTHBEARER":
            self._check_oauth()
        elif self.sasl_mechanism != "GSSAPI" and (self.sasl_username is None or self.sasl_password is None):
            raise ConfigException(f"sasl.mechanism={self.sasl_mechanism} needs sasl.username and sasl.password")

    def _check_oauth(self) -> None:
        if self.oauth_cb is not None:
            return
        if self.sasl_oauthbearer_method != "oidc":
            raise ConfigException(
                "sasl.mechanism=OAUTHBEARER needs oauth_cb, a function that returns (token, expiry), or "
                "sasl.oauthbearer.method=oidc with sasl.oauthbearer.token.endpoint.url"
            )
        for name in ("token_endpoint_url", "client_id", "client_secret"):
            if not getattr(self, f"sasl_oauthbearer_{name}"):
                raise ConfigException(
                    f"sasl.oauthbearer.method=oidc needs sasl.oauthbearer.{name.replace('_', '.')} "
                    "(the grant of client credentials)"
                )
        url = self.sasl_oauthbearer_token_endpoint_url or ""
        if "@" in url.partition("://")[2].partition("/")[0]:
            raise ConfigException(
                "sasl.oauthbearer.token.endpoint.url names a user; give sasl.oauthbearer.client.id and "
                "sasl.oauthbearer.client.secret instead"
            )
        if not url.startswith(("https://", "http://")):
            raise ConfigException(
                f"{shown('sasl.oauthbearer.token.endpoint.url', url)} is not an http or https address"
            )

    @classmethod
    def from_dict(cls, config: Mapping[str, object]) -> Self:
        """Read dotted keys, such as ``{"bootstrap.servers": "localhost:9092"}``.

        Raises:
            ConfigException: a key is unknown (the message suggests the nearest) or refused, or a value is malformed.
        """
        values, _ = read(cls, config, what="the Kafka client", foreign=FOREIGN)
        protocol = values.get("security_protocol")
        if protocol is not None:
            values["security_protocol"] = protocol.upper()  # librdkafka's is lower-case
        return cls(**values)

    @classmethod
    def keys(cls) -> frozenset[str]:
        """Return every dotted key that ``from_dict`` accepts and that has an effect."""
        return frozenset(key for known in settings_of(cls).values() for key in (known.key, *known.aliases))

    def retry_backoff(self) -> Backoff:
        """Return the pauses between retries of a request, in seconds."""
        return Backoff(self.retry_backoff_ms / 1000, self.retry_backoff_max_ms / 1000)

    def reconnect_backoff(self) -> Backoff:
        """Return the pauses after lost or refused connections, in seconds."""
        return Backoff(self.reconnect_backoff_ms / 1000, self.reconnect_backoff_max_ms / 1000)

    def servers(self) -> tuple[tuple[str, int], ...]:
        """Return the bootstrap servers as (host, port).

        Raises:
            ConfigException: an entry is not ``HOST:PORT``.
        """
        result = []
        for entry in self.bootstrap_servers.split(","):
            text = entry.strip().rpartition("://")[2]
            if not text:
                continue
            try:
                host, port = host_and_port(text)
            except ValueError as error:
                raise ConfigException(f"bootstrap.servers={self.bootstrap_servers!r}: {error}") from None
            result.append((host.strip("[]"), port))
        return tuple(result)


def longest_request(settings: Mapping[str, Any]) -> int:
    """Return the maximum size of a Produce request (and so of a record) from partial settings, in bytes."""
    known = settings_of(ClientConfig)["max_request_size"]
    names = (name for name in (known.key, *known.aliases) if name in settings)
    return int(settings.get(next(names, ""), _REQUEST_BYTES))
