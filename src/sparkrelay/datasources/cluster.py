"""A cluster as a reader of whole topics sees it."""

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

__all__ = ["Cluster", "Span", "client_settings", "require_committed"]

_PREFIX: Final = "kafka."
_BOOTSTRAP_SECONDS: Final = 30.0
_COMMITTED: Final = "read_committed"


@dataclass(frozen=True, slots=True)
class Span:
    """Records of a partition that are to be read: offsets ``[start, stop)``."""

    partition: TopicPartition
    start: int
    stop: int


def client_settings(options: Mapping[str, str]) -> MaskedSettings:
    """Return what options say of the Kafka client, as Spark's: each has ``kafka.`` in front.

    Raises:
        ConfigException: ``kafka.bootstrap.servers`` is not there, or a setting cannot be.
    """
    settings = MaskedSettings(
        {key.removeprefix(_PREFIX): value for key, value in options.items() if key.startswith(_PREFIX)}
    )
    if "bootstrap.servers" not in settings:
        raise ConfigException("option kafka.bootstrap.servers is missing: say where Kafka is, HOST:PORT[,...]")
    settings.setdefault("client.id", "sparkrelay-reader")
    ConsumerConfig.from_dict(settings)
    return settings


def require_committed(settings: Mapping[str, Any]) -> None:
    """Refuse to read what may yet be aborted: with it, rows would be those of no table.

    Raises:
        ConfigException: ``isolation.level`` says so.
    """
    level = settings.get("isolation.level", _COMMITTED)
    if level != _COMMITTED:
        raise ConfigException(f"isolation.level={level!r}: tables are made of committed records alone; leave it out")


class Cluster:
    """Answers what topics there are and where they begin and end. Use it as a context manager.

    Args:
        settings: a consumer's settings. ``isolation.level`` is ``read_committed`` unless given.

    Raises:
        ConfigException: a setting cannot be.
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
        """Return the names of all topics that this client may see."""
        return self._admin.list_topics()

    def partitions(self, topics: Collection[str]) -> dict[str, list[TopicPartition]]:
        """Return the partitions of topics, in order; none of one that does not exist."""
        found = self._admin.partitions(topics)
        return {topic: [TopicPartition(topic, number) for number in sorted(found.get(topic) or ())] for topic in topics}

    def spans(self, partitions: Iterable[TopicPartition]) -> list[Span]:
        """Return all that partitions hold, up to the first open transaction."""
        partitions = list(partitions)
        starts = self.offsets(dict.fromkeys(partitions, EARLIEST))
        stops = self.offsets(dict.fromkeys(partitions, LATEST))
        return [Span(partition, starts[partition], stops[partition]) for partition in partitions]

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return an offset of each partition: its first, its end, or that of a time; see ``Admin.list_offsets``."""
        return self._admin.list_offsets(wanted, read_committed=self._read_committed) if wanted else {}

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
