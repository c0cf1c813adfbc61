"""A Kafka cluster, for readers of whole topics."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from sparkrelay.client.admin import EARLIEST, LATEST, Admin
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.consumer.base.config import ConsumerConfig
from sparkrelay.errors import ConfigException
from sparkrelay.settings import MaskedSettings
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

_PREFIX: Final = "kafka."
_BOOTSTRAP_SECONDS: Final = 30.0
_COMMITTED: Final = "read_committed"


@dataclass(frozen=True, slots=True)
class Span:
    """Records of a partition: offsets ``[start, stop)``."""

    partition: TopicPartition
    start: int
    stop: int


def client_settings(options: Mapping[str, str]) -> MaskedSettings:
    """Return the settings of the Kafka client from options prefixed with ``kafka.``, as Spark's source has them.

    Raises:
        ConfigException: ``kafka.bootstrap.servers`` is missing, or a setting is not valid.
    """
    settings = MaskedSettings(
        {key.removeprefix(_PREFIX): value for key, value in options.items() if key.startswith(_PREFIX)}
    )
    if "bootstrap.servers" not in settings:
        raise ConfigException("option kafka.bootstrap.servers is missing: set it to HOST:PORT[,...] of the brokers")
    settings.setdefault("client.id", "sparkrelay-reader")
    ConsumerConfig.from_dict(settings)
    return settings


def require_committed(settings: Mapping[str, Any]) -> None:
    """Raise ConfigException for another ``isolation.level``: uncommitted records are not part of a table."""
    level = settings.get("isolation.level", _COMMITTED)
    if level != _COMMITTED:
        raise ConfigException(f"isolation.level={level!r}: tables consist of committed records only; leave it out")


class Cluster:
    """Topics, partitions and offsets of a cluster, over the connections of :meth:`open`."""

    def __init__(self, admin: Admin, *, read_committed: bool) -> None:
        self._admin = admin
        self._read_committed = read_committed

    @classmethod
    @contextlib.contextmanager
    def open(cls, settings: Mapping[str, Any]) -> Iterator[Self]:
        """Connect for the duration of a block, by a consumer's settings.

        ``isolation.level`` is ``read_committed`` by default.

        Raises:
            ConfigException: a setting is not valid.
            TimeoutException: no broker answers.
        """
        config = ConsumerConfig.from_dict(settings, defaults={"isolation.level": _COMMITTED})
        with KafkaClient(config.client) as client:
            client.bootstrap(_BOOTSTRAP_SECONDS)
            yield cls(Admin(client), read_committed=config.read_committed)

    def topics(self) -> frozenset[str]:
        """Return all topics visible to this client."""
        return self._admin.list_topics()

    def partitions(self, topics: Collection[str]) -> dict[str, list[TopicPartition]]:
        """Return the sorted partitions of each topic; a missing topic has none."""
        found = self._admin.partitions(topics)
        return {topic: [TopicPartition(topic, number) for number in sorted(found.get(topic) or ())] for topic in topics}

    def spans(self, partitions: Iterable[TopicPartition]) -> list[Span]:
        """Return all records of partitions, up to the first open transaction."""
        partitions = list(partitions)
        if not partitions:
            return []
        starts, stops = (
            self._admin.list_offsets(dict.fromkeys(partitions, end), read_committed=self._read_committed)
            for end in (EARLIEST, LATEST)
        )
        return [Span(partition, starts[partition], stops[partition]) for partition in partitions]
