"""A Produce request whose record batches are never copied.

kafka-python would copy each batch twice into one buffer. Here the request is a list: short pieces of protocol between
the batches as they are, which the connection hands to the kernel in one system call. Version 9 to 13 of Kafka's Produce
request (flexible). From 12 on a partition joins its producer's transaction by being written to (KIP-890). From 13 on
topics go by their ids, so that nothing is written to one that was created again (KIP-516).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.api_header import RequestHeader

if TYPE_CHECKING:
    import uuid
    from collections.abc import Mapping

__all__ = ["BY_ID_VERSION", "TRANSACTION_V2_VERSION", "ProduceBatches", "uvarint"]

#: The first version in which producing adds the partition to the transaction.
TRANSACTION_V2_VERSION: Final = 12
#: The first version that names topics by their ids (Kafka 4.1).
BY_ID_VERSION: Final = 13
_HEADER: Final = struct.Struct(">ihhi")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_ACKS_ALL: Final = -1


class ProduceBatches:
    """What ``KafkaClient.send`` takes for a Produce request: ``acks=all``, one record batch for each partition.

    Args:
        topics: for each topic name, for each partition, the encoded batch.
        transactional_id: whose transaction it is part of, or None.
        timeout_ms: how long the broker may wait for its replicas.
        ids: the ids of the topics; None if one is not known: then the broker goes by their names.
        joined: the partitions were added to the transaction by request, so that writing must not do it.
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
        self.header: Any = None
        implicit = transactional_id is not None and not joined
        self.min_version = TRANSACTION_V2_VERSION if implicit else 9
        newest = TRANSACTION_V2_VERSION if ids is None else BY_ID_VERSION
        self.max_version = TRANSACTION_V2_VERSION - 1 if joined else newest
        # Where kafka.net looks for bounds of one request.
        self._min_version = self.min_version
        self._max_version = self.max_version

    def expect_response(self) -> bool:
        """Return True: with ``acks=all`` there always is one."""
        return True

    def with_header(self, correlation_id: int, client_id: str) -> None:
        """Take what goes into the request's header."""
        self.header = RequestHeader(
            request_api_key=self.API_KEY,
            request_api_version=self.API_VERSION,
            correlation_id=correlation_id,
            client_id=client_id,
        )

    def encode_parts(self) -> list[Any]:
        """Return the framed request as buffers to be sent one after the other."""
        client_id = self.header.client_id.encode()
        out = bytearray(
            _HEADER.pack(0, self.API_KEY, self.API_VERSION, self.header.correlation_id)
            + _INT16.pack(len(client_id))
            + client_id
            + b"\0"
        )
        _compact_string(out, self._transactional_id)
        out += _INT16.pack(_ACKS_ALL) + _INT32.pack(self._timeout_ms) + uvarint(len(self._topics) + 1)
        parts: list[Any] = []
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
