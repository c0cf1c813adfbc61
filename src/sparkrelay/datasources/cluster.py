"""A Kafka cluster, for readers of whole topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from sparkrelay.client.admin import EARLIEST, LATEST, Admin
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.consumer.base.config import ConsumerConfig
from sparkrelay.errors import ConfigException
from sparkrelay.settings import MaskedSettings
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

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
    """Topics, partitions and offsets of a cluster, by a consumer's settings. Use it as a context manager.

    ``isolation.level`` is ``read_committed`` by default.

    Raises:
        ConfigException: a setting is not valid.
        TimeoutException: no broker answers.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        config = ConsumerConfig.from_dict(settings, defaults={"isolation.level": _COMMITTED})
        self._read_committed = config.read_committed
        self._client = KafkaClient(config.client)
        try:
            self._client.bootstrap(_BOOTSTRAP_SECONDS)
        except BaseException:
            self._client.close()
            raise
        self._admin = Admin(self._client)

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
        starts = self.offsets(dict.fromkeys(partitions, EARLIEST))
        stops = self.offsets(dict.fromkeys(partitions, LATEST))
        return [Span(partition, starts[partition], stops[partition]) for partition in partitions]

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return an offset of each partition: the first, the end, or that of a time; see ``Admin.list_offsets``."""
        return self._admin.list_offsets(wanted, read_committed=self._read_committed) if wanted else {}

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
