"""A Produce request whose record batches are never copied.

kafka-python would copy each batch twice into one buffer. Here the request is a list of buffers, protocol fields between
the unchanged batches, which the connection passes to the kernel in one system call. Versions 9 to 13 of Kafka's Produce
(flexible). Since 12 writing adds a partition to the transaction (KIP-890). Since 13 topics go by their ids, so that
nothing is written to a recreated topic (KIP-516).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import uuid
    from collections.abc import Mapping

#: The first version in which writing adds the partition to the transaction.
_TRANSACTION_V2_VERSION: Final = 12
#: The first version with topic ids (Kafka 4.1).
BY_ID_VERSION: Final = 13
_HEADER: Final = struct.Struct(">ihhi")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_ACKS_ALL: Final = -1


class ProduceBatches:
    """A Produce request for ``KafkaClient.send``: ``acks=all``, one record batch for each partition.

    Args:
        topics: topic name -> partition -> encoded batch.
        transactional_id: its transaction, or None.
        timeout_ms: how long the broker may wait for its replicas.
        ids: topic ids; None if one is unknown, so that topics go by name.
        joined: the partitions have been added to the transaction by request, so that writing must not do it.
    """

    API_KEY = 0
    name = "ProduceRequest"

    def __init__(
        self,
        topics: Mapping[str, Mapping[int, Any]],
        *,
        transactional_id: str | None,
        timeout_ms: int,
        ids: Mapping[str, uuid.UUID] | None = None,
        joined: bool = False,
    ) -> None:
        self._topics = topics
        self._ids = ids or {}
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self.API_VERSION: int | None = None
        implicit = transactional_id is not None and not joined
        self.min_version = _TRANSACTION_V2_VERSION if implicit else 9
        newest = _TRANSACTION_V2_VERSION if ids is None else BY_ID_VERSION
        self.max_version = _TRANSACTION_V2_VERSION - 1 if joined else newest
        # kafka.net reads the bounds of a request here.
        self._min_version = self.min_version
        self._max_version = self.max_version

    def expect_response(self) -> bool:
        """Return True: ``acks=all``."""
        return True

    def encode_parts(self, correlation_id: int, client_id: str) -> list[Any]:
        """Return the framed request as buffers to send one after the other."""
        client = client_id.encode()
        header = _HEADER.pack(0, self.API_KEY, self.API_VERSION, correlation_id)
        out = bytearray(header + _INT16.pack(len(client)) + client + b"\0")
        parts: list[Any] = []
        _compact_string(out, self._transactional_id)
        out += _INT16.pack(_ACKS_ALL) + _INT32.pack(self._timeout_ms) + uvarint(len(self._topics) + 1)
        by_id = self.API_VERSION is not None and self.API_VERSION >= BY_ID_VERSION
        for topic, partitions in self._topics.items():
            if by_id:
                out += self._ids[topic].bytes
            else:
                _compact_string(out, topic)
            out += uvarint(len(partitions) + 1)
            for partition, batch in partitions.items():
                out += _INT32.pack(partition) + uvarint(len(batch) + 1)
                parts += [out, batch]
                out = bytearray(b"\0")  # the partition's tagged fields
            out += b"\0"  # the topic's
        out += b"\0"  # the request's
        parts.append(out)
        _INT32.pack_into(parts[0], 0, sum(map(len, parts)) - 4)
        return parts


def uvarint(value: int) -> bytes:
    """Encode an unsigned variable-length integer."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _compact_string(out: bytearray, text: str | None) -> None:
    if text is None:
        out.append(0)
        return
    data = text.encode()
    out += uvarint(len(data) + 1) + data
