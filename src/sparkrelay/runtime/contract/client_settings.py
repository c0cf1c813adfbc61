"""The settings of an instance's Kafka clients, made from its own.

Prefixed settings (``consumer.``, ``producer.``, ``admin.``) win over what is derived, but for those that exactly-once
stands on. They are checked when the instance is made, though some are needed only later or only in workers.
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

__all__ = [
    "admin_settings",
    "check_client_settings",
    "compression",
    "consumer_settings",
    "flush_seconds",
    "worker_settings",
]

_COMPRESSION: Final = "compression.type"
_ACKS: Final = "acks"
#: Another value would lose or repeat records, or join another group.
_FIXED: Final[Mapping[str, object]] = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "auto.offset.reset": "none",
}
#: What has a setting of the instance's own.
_OURS: Final[Mapping[str, str]] = {
    "group.id": "application.id",
    "auto.offset.reset": "auto.offset.reset",
    "group.instance.id": "group.instance.id",
    "max.decompressed.batch.bytes": "max.decompressed.batch.bytes",
}

#: Of transaction.timeout.ms, what writing may take: the rest is for the commit. The broker aborts what takes longer.
_SHARE_OF_TRANSACTION: Final = 0.75


def admin_settings(config: StreamsConfig, client_id: str) -> MaskedSettings:
    """Return the settings of a connection for questions and transactions."""
    return MaskedSettings({**_connection(config, client_id), **config.admin})


def consumer_settings(config: StreamsConfig, client_id: str, instance_id: str | None = None) -> MaskedSettings:
    """Return the settings of a group member; ``instance_id`` makes it a static one (KIP-345)."""
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

    Workers find their connections by these, and outlive an instance. ``run`` counts the application's instances in this
    driver: a second one may come after its topics were made anew, of which the first one's connections know nothing.
    """
    own = {key: value for key, value in config.producer.items() if key not in {_COMPRESSION, _ACKS}}
    settings = MaskedSettings(_connection(config, client_id) | own)
    if run != 1:
        settings["client.id"] = f"{settings['client.id']}-{run}"
    return settings


def compression(config: StreamsConfig) -> str:
    """Return the codec of everything that is written."""
    return str(config.producer.get(_COMPRESSION, "none"))


def flush_seconds(config: StreamsConfig) -> float:
    """Return how long the broker may take to acknowledge what a batch has written."""
    client = ClientConfig.from_dict(worker_settings(config, "worker"))
    return min(client.delivery_timeout_ms, _SHARE_OF_TRANSACTION * config.transaction_timeout_ms) / 1000


def check_client_settings(config: StreamsConfig) -> None:
    """Check what is passed on to the clients.

    Raises:
        ConfigException: a prefixed setting is unknown, malformed, or one that exactly-once stands on.
    """
    for key, value in config.consumer.items():
        if key in _OURS:
            raise ConfigException(f"setting 'consumer.{key}' (value {value!r}) is not free: set {_OURS[key]!r} instead")
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
    """Return what every connection needs, as the clients spell it."""
    return {
        "bootstrap.servers": config.bootstrap_servers,
        "client.id": config.client_id or client_id,
        "request.timeout.ms": config.request_timeout_ms,
        "max.decompressed.batch.bytes": config.max_decompressed_batch_bytes,
        **config.security,
    }
