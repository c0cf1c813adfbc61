"""Topics for demos and tests, one connection for each call.

Long-running programs use ``sparkrelay.client.Admin``. The package does not import this module, so that starting a
broker does not need the client.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from sparkrelay.client.admin import Admin, TopicDescription, TopicSpec
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["TopicDescription", "create_topic", "delete_topic", "describe_topic"]

_TIMEOUT_S = 30.0


def create_topic(
    bootstrap_servers: str,
    name: str,
    *,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
    exist_ok: bool = False,
) -> bool:
    """Create a topic and wait until its partitions have leaders; return whether this call created it.

    Args:
        bootstrap_servers: ``host:port`` of the broker.
        name: The topic's name.
        partitions: Number of partitions.
        config: The topic's settings, such as ``{"cleanup.policy": "compact"}``.
        exist_ok: Leave an existing topic unchanged instead of raising.

    Raises:
        BrokerResponseException: The broker refused, for example because the topic exists.
    """
    with _admin(bootstrap_servers) as admin:
        return name in admin.create_topics({name: TopicSpec(partitions, configs=dict(config or {}))}, exist_ok=exist_ok)


def delete_topic(bootstrap_servers: str, name: str, *, missing_ok: bool = False) -> None:
    """Delete a topic; raises UnknownTopicException if it does not exist, unless ``missing_ok``."""
    with _admin(bootstrap_servers) as admin:
        admin.delete_topics([name], missing_ok=missing_ok)


def describe_topic(bootstrap_servers: str, name: str) -> TopicDescription:
    """Return a topic's partitions and settings; raises UnknownTopicException if it does not exist."""
    with _admin(bootstrap_servers) as admin:
        return admin.describe_topics([name])[name]


@contextmanager
def _admin(bootstrap_servers: str) -> Iterator[Admin]:
    with KafkaClient(ClientConfig(bootstrap_servers=bootstrap_servers)) as client:
        client.bootstrap(_TIMEOUT_S)
        yield Admin(client, timeout=_TIMEOUT_S)
