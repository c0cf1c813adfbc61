"""Topics for demos and tests, one call each: connect, do it, disconnect.

A long-lived program uses ``sparkrelay.client.Admin``, which these functions wrap. This module is not imported by the
package itself, so that starting a broker does not need the client.
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
    """Make a topic and wait until each partition has a leader.

    Args:
        bootstrap_servers: ``host:port`` of the broker.
        name: The topic's name.
        partitions: Number of partitions.
        config: The topic's settings, such as ``{"cleanup.policy": "compact"}``.
        exist_ok: Leave a topic of that name as it is instead of raising.

    Returns:
        True if this call made it.

    Raises:
        BrokerResponseException: The broker refused, for example because the topic exists.
    """
    with _admin(bootstrap_servers) as admin:
        return name in admin.create_topics({name: TopicSpec(partitions, configs=dict(config or {}))}, exist_ok=exist_ok)


def delete_topic(bootstrap_servers: str, name: str, *, missing_ok: bool = False) -> None:
    """Delete a topic.

    Raises:
        UnknownTopicException: There is none of that name, and ``missing_ok`` is false.
    """
    with _admin(bootstrap_servers) as admin:
        admin.delete_topics([name], missing_ok=missing_ok)


def describe_topic(bootstrap_servers: str, name: str) -> TopicDescription:
    """Return a topic's partitions and settings.

    Raises:
        UnknownTopicException: There is none of that name.
    """
    with _admin(bootstrap_servers) as admin:
        return admin.describe_topics([name])[name]


@contextmanager
def _admin(bootstrap_servers: str) -> Iterator[Admin]:
    with KafkaClient(ClientConfig(bootstrap_servers=bootstrap_servers)) as client:
        client.bootstrap(_TIMEOUT_S)
        yield Admin(client, timeout=_TIMEOUT_S)
