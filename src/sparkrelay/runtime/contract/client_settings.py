"""The settings of an instance's Kafka clients, derived from its own.

Prefixed settings (``consumer.``, ``producer.``, ``admin.``) override derived ones, except those that exactly-once
depends on. All are checked when the instance is made, even those that are used later or only in workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.config import ClientConfig
from sparkrelay.client.foreign_settings import FOREIGN
from sparkrelay.consumer.base.config import ConsumerConfig
from sparkrelay.errors import ConfigException
from sparkrelay.records.batches.codecs import codec_id
from sparkrelay.settings import MaskedSettings, nearest, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.config import StreamsConfig

_COMPRESSION: Final = "compression.type"
_ACKS: Final = "acks"
#: Another value would lose or repeat records, or join another group.
_FIXED: Final[Mapping[str, object]] = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "auto.offset.reset": "none",
}
#: Client setting -> the instance's setting for it.
_OURS: Final[Mapping[str, str]] = {
    "group.id": "application.id",
    "auto.offset.reset": "auto.offset.reset",
    "group.instance.id": "group.instance.id",
    "max.decompressed.batch.bytes": "max.decompressed.batch.bytes",
}

#: Share of transaction.timeout.ms for writing, the rest for the commit: the broker aborts longer transactions.
_SHARE_OF_TRANSACTION: Final = 0.75


def admin_settings(config: StreamsConfig, client_id: str) -> MaskedSettings:
    """Return the settings of a connection for metadata and transactions."""
    return MaskedSettings({**_connection(config, client_id), **config.admin})


def consumer_settings(config: StreamsConfig, client_id: str, instance_id: str | None = None) -> MaskedSettings:
    """Return the settings of a group member; ``instance_id`` makes it static (KIP-345)."""
    own = {
        "group.id": config.application_id,
        "session.timeout.ms": config.session_timeout_ms,
        "heartbeat.interval.ms": config.heartbeat_interval_ms,
        "max.poll.interval.ms": config.max_poll_interval_ms,
        "default.api.timeout.ms": config.default_api_timeout_ms,
        **({"client.rack": config.client_rack} if config.client_rack else {}),
        **({"group.instance.id": instance_id} if instance_id else {}),
    }
    return MaskedSettings({**_connection(config, client_id), **own, **config.consumer, **_FIXED})


def worker_settings(config: StreamsConfig, client_id: str, *, run: int = 1) -> MaskedSettings:
    """Return the settings of workers' connections, which fetch and produce.

    Workers find their connections by these settings, and outlive an instance. ``run`` numbers the application's
    instances in this driver: a topic may be recreated between two, which the first one's connections do not notice.
    """
    own = {key: value for key, value in config.producer.items() if key not in {_COMPRESSION, _ACKS}}
    settings = MaskedSettings(_connection(config, client_id) | own)
    if run != 1:
        settings["client.id"] = f"{settings['client.id']}-{run}"
    return settings


def compression(config: StreamsConfig) -> str:
    """Return the codec of all written records."""
    return str(config.producer.get(_COMPRESSION, "none"))


def flush_seconds(config: StreamsConfig) -> float:
    """Return how long to wait for the acknowledgement of a batch's records."""
    client = ClientConfig.from_dict(worker_settings(config, "worker"))
    return min(client.delivery_timeout_ms, _SHARE_OF_TRANSACTION * config.transaction_timeout_ms) / 1000


def check_client_settings(config: StreamsConfig) -> None:
    """Raise ConfigException for unknown, malformed or exactly-once-breaking client settings."""
    for key, value in config.consumer.items():
        if key in _OURS:
            raise ConfigException(
                f"setting 'consumer.{key}' (value {value!r}) cannot be set: set {_OURS[key]!r} instead"
            )
        if key in _FIXED and str(value).lower() != str(_FIXED[key]).lower():
            raise ConfigException(
                f"setting 'consumer.{key}' has the value {value!r}: exactly once needs {_FIXED[key]!r}; leave it out"
            )
    known = {_COMPRESSION, _ACKS, *ClientConfig.keys()}
    for key, value in config.producer.items():
        if key not in known and key not in FOREIGN:
            raise ConfigException(f"unknown setting {shown(f'producer.{key}', value)}{nearest(key, known)}")
    if str(config.producer.get(_ACKS, "all")) not in {"all", "-1"}:
        raise ConfigException(f"setting 'producer.acks' has the value {config.producer[_ACKS]!r}: it is always 'all'")
    codec_id(compression(config))
    ConsumerConfig.from_dict(consumer_settings(config, "check", config.group_instance_id))
    ClientConfig.from_dict(admin_settings(config, "check"))
    ClientConfig.from_dict(worker_settings(config, "check"))


def _connection(config: StreamsConfig, client_id: str) -> dict[str, Any]:
    """Return the settings that all connections share."""
    return {
        "bootstrap.servers": config.bootstrap_servers,
        "client.id": config.client_id or client_id,
        "request.timeout.ms": config.request_timeout_ms,
        "max.decompressed.batch.bytes": config.max_decompressed_batch_bytes,
        **config.security,
    }
