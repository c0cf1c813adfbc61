"""Partitions in Kafka's messages, which list them under their topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    import uuid
    from collections.abc import Hashable, Iterable, Iterator, Mapping

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key, in the order given; of partitions, the numbers of each topic."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def listed(make: Any, parts: Iterable[tuple[str, Any]]) -> list[Any]:
    """Return the topics of a request, which ``make`` makes of a name and the parts about its partitions."""
    return [make(name=name, partitions=those) for name, those in grouped(parts).items()]


def each_partition(
    topics: Iterable[Any], names: Mapping[uuid.UUID, str] | None = None, *, field: str = "name"
) -> Iterator[tuple[TopicPartition, Any]]:
    """Yield the partitions in an answer's topics, and the part about each.

    Topics are named by their ``field``, or by their id, whose name is in ``names``.
    """
    for topic in topics:
        name = getattr(topic, field) or (names or {}).get(topic.topic_id, "")
        for part in topic.partitions:
            yield TopicPartition(name, part.partition_index), part
