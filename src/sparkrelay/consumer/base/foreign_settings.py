"""Consumer settings of the Java client or librdkafka that we lack: why, and the replacement.

See ``sparkrelay.settings``; those of connections are in ``client.foreign_settings``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from sparkrelay.client.foreign_settings import each
from sparkrelay.settings import Foreign

if TYPE_CHECKING:
    from collections.abc import Mapping

_DESERIALIZER: Final = Foreign(
    "Consumer and AsyncConsumer take it and make columns of other types; everywhere else keys and values are bytes",
    (
        "org.apache.kafka.common.serialization.bytearraydeserializer",
        "<class 'org.apache.kafka.common.serialization.bytearraydeserializer'>",
        "none",
    ),
)
_CALLBACK: Final = Foreign("give on_assigned, on_revoked and on_lost to subscribe()")
_COMMITTED: Final = Foreign("give a callback to commit_async(); commit() raises, automatic commits are logged")
_PREFETCH: Final = Foreign(
    "what is fetched ahead is bounded by fetch.max.bytes for each broker and max.partition.fetch.bytes", None
)
_SHARE: Final = Foreign("it concerns share groups (KIP-932), which are another kind of consumer")
_FILES: Final = Foreign("offsets are kept by the broker, or by the program: assign() and seek()", ("broker",))
_PRODUCER: Final = Foreign("it is a producer's setting; leave it out of a consumer's")

FOREIGN: Final[Mapping[str, Foreign]] = MappingProxyType(
    {
        "key.deserializer": _DESERIALIZER,
        "value.deserializer": _DESERIALIZER,
        "interceptor.classes": Foreign("there are no interceptors: work on the table that poll() returns", ("", "[]")),
        "exclude.internal.topics": Foreign(
            "internal topics are read only by their names, never by a pattern", ("true",)
        ),
        "internal.throw.on.fetch.stable.offset.unsupported": Foreign("it is internal to the Java client", None),
        "internal.leave.group.on.close": Foreign(
            "close() leaves the group; static members keep their place", ("true",)
        ),
        "share.acknowledgement.mode": _SHARE,
        "share.acquire.mode": _SHARE,
        "group.protocol.type": Foreign("the group's type is always 'consumer'", ("consumer",)),
        "coordinator.query.interval.ms": Foreign(
            "the coordinator is looked for whenever it is needed and unknown", None
        ),
        "enable.auto.offset.store": Foreign(
            "automatic commits cover what poll() has returned; to choose, set enable.auto.commit to false and call "
            "commit with offsets",
            ("true",),
        ),
        "enable.partition.eof": Foreign(
            "there are no end-of-partition events: compare position() with end_offsets()", ("false",)
        ),
        "auto.commit.enable": Foreign("its name is enable.auto.commit"),
        "queued.min.messages": _PREFETCH,
        "queued.max.messages.kbytes": _PREFETCH,
        "fetch.queue.backoff.ms": _PREFETCH,
        "fetch.error.backoff.ms": Foreign("pauses after failures are retry.backoff.ms and retry.backoff.max.ms", None),
        "consume.callback.max.messages": Foreign("give max_records to poll(), or set max.poll.records", ("0",)),
        "consume_cb": Foreign("poll() returns the records"),
        "rebalance_cb": _CALLBACK,
        "offset_commit_cb": _COMMITTED,
        "on_commit": _COMMITTED,
        "offset.store.method": _FILES,
        "offset.store.path": Foreign(_FILES.note),
        "offset.store.sync.interval.ms": Foreign(_FILES.note),
        "default_topic_conf": Foreign("give such settings directly, such as auto.offset.reset"),
        "default.topic.config": Foreign("give such settings directly, such as auto.offset.reset"),
        **each(_PRODUCER, "", "acks batch.size buffer.memory compression.type enable.idempotence key.serializer"),
        **each(_PRODUCER, "", "linger.ms partitioner.class retries transactional.id value.serializer"),
    }
)
