"""The two messages that members and leader exchange through the broker, which does not read them.

Versions as in Kafka 3.5+: subscription 3 (owned partitions, generation, rack), assignment 3. Of newer versions the
known fields are read: fields are only ever added at the end.
"""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from sparkrelay.client.messages.per_topic import grouped
from sparkrelay.consumer.base.assignor import MemberAssignment, MemberSubscription
from sparkrelay.errors import SerializationException
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_VERSION: Final = 3


def encode_subscription(subscription: MemberSubscription) -> bytes:
    """Encode the subscription of a joining member."""
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=_by_topic(ConsumerProtocolSubscription, sorted(subscription.owned_partitions)),
        generation_id=subscription.generation,
        rack_id=subscription.rack,
    )
    return bytes(message.encode(version=_VERSION))


def decode_subscription(data: bytes, *, group_instance_id: str | None = None) -> MemberSubscription:
    """Decode a member's subscription, or raise SerializationException."""
    with _named("subscription", data):
        message, version = _decode(ConsumerProtocolSubscription, data)
        owned = message.owned_partitions if version >= 1 else ()
        return MemberSubscription(
            topics=frozenset(message.topics),
            owned_partitions=frozenset(TopicPartition(item.topic, p) for item in owned for p in item.partitions),
            user_data=bytes(message.user_data or b""),
            generation=message.generation_id if version >= 2 else -1,
            rack=message.rack_id if version >= 3 else None,
            group_instance_id=group_instance_id,
        )


def encode_assignment(assignment: MemberAssignment) -> bytes:
    """Encode a member's assignment. The order of partitions is kept within each topic."""
    partitions = _by_topic(ConsumerProtocolAssignment, assignment.partitions)
    message = ConsumerProtocolAssignment(assigned_partitions=partitions, user_data=assignment.user_data)
    return bytes(message.encode(version=_VERSION))


def decode_assignment(data: bytes) -> MemberAssignment:
    """Decode an assignment, or raise SerializationException; no bytes mean no partitions."""
    if not data:
        return MemberAssignment()
    with _named("assignment", data):
        message, _ = _decode(ConsumerProtocolAssignment, data)
        given = message.assigned_partitions
        return MemberAssignment(
            partitions=tuple(TopicPartition(item.topic, p) for item in given for p in item.partitions),
            user_data=bytes(message.user_data or b""),
        )


def _decode(kind: Any, data: bytes) -> tuple[Any, int]:
    (version,) = struct.unpack_from(">h", data)
    if version < 0:
        raise ValueError(f"version {version}")
    return kind.decode(data[2:], version=min(version, _VERSION), header=False), version


@contextlib.contextmanager
def _named(what: str, data: bytes) -> Iterator[None]:
    try:
        yield
    except (ValueError, IndexError, struct.error, OverflowError, TypeError) as error:
        # TypeError: an array is null although the protocol does not allow it.
        raise SerializationException(f"a member's {what} of {len(data)} bytes cannot be read: {error}") from error


def _by_topic(kind: Any, partitions: Iterable[TopicPartition]) -> list[Any]:
    return [kind.TopicPartition(topic=topic, partitions=numbers) for topic, numbers in grouped(partitions).items()]
