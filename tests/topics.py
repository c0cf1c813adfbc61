"""Topics as tests have them: made with their leaders, written until all is acknowledged, read to their ends."""

import itertools
import json
import os
from contextlib import contextmanager

from tests.waiting import LONG, collect, wait_until

_numbers = itertools.count(1)


def topic_maker(admin):
    """Return what makes topics: see the fixture `make_topic`."""
    from confluent_kafka.admin import NewTopic

    def make(hint, partitions=1, config=None):
        name = f"{hint}-{os.getpid()}-{next(_numbers)}"
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        admin.create_topics([topic])[name].result(LONG)
        wait_until(lambda: _has_leaders(admin, name, partitions), f"topic {name} has no leaders")
        return name

    return make


def _has_leaders(admin, name, partitions):
    found = admin.list_topics(name, timeout=LONG).topics[name].partitions
    return len(found) == partitions and all(p.leader >= 0 for p in found.values())


def write(servers, topic, rows, **config):
    """Write rows and return when all are acknowledged: see the fixture `produce`."""
    from confluent_kafka import Producer

    failed = []
    # A long linger, which flush() passes over: the rows of a call are one batch per partition however slow the machine.
    producer = Producer(
        {"bootstrap.servers": servers, "partitioner": "murmur2_random", "linger.ms": 1000}
        | {name.replace("_", "."): value for name, value in config.items()}
    )
    transactional = "transactional_id" in config
    if transactional:
        producer.init_transactions(LONG)
        producer.begin_transaction()
    for row in rows:
        fields = dict(zip(("key", "value"), row, strict=True)) if isinstance(row, tuple) else dict(row)
        fields["key"], fields["value"] = _bytes(fields.get("key")), _bytes(fields.get("value"))
        while True:
            try:
                producer.produce(topic, **fields, on_delivery=lambda error, _: error and failed.append(error))
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if transactional:
        producer.commit_transaction(LONG)
    left = producer.flush(LONG)
    assert not failed, failed[:3]
    assert not left, f"{left} records were not acknowledged within {LONG} s"


def _bytes(value):
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value).encode()


def read_to_end(servers, topic, *, read_committed=True):
    """Yield what is in a topic now, as confluent-kafka's messages, each partition's in order: see `consumed`."""
    # The ends are only answered once there is nothing more to wait for.
    with _reader(servers, topic, read_committed=read_committed, wait_ms=10) as (consumer, partitions):
        open_ends = set(partitions)

        def more():
            for message in consumer.consume(10_000, 0.02):
                if message.error() is None:
                    yield message
                elif message.error().name() == "_PARTITION_EOF":
                    open_ends.discard(message.partition())
                else:
                    raise AssertionError(message.error())

        yield from collect(more, lambda _: not open_ends, f"not all partitions of {topic} end")


@contextmanager
def following(servers, topic):
    """Give what returns, each time it is called, the messages of a topic that have been committed since.

    It waits a moment for them. To read a topic from its beginning again and again costs several times as much.
    """
    with _reader(servers, topic, read_committed=True, wait_ms=100) as (consumer, _):

        def more():
            found = consumer.consume(10_000, 0.05)
            troubles = [m.error() for m in found if m.error() and m.error().name() != "_PARTITION_EOF"]
            assert not troubles, troubles
            return [message for message in found if message.error() is None]

        yield more


@contextmanager
def _reader(servers, topic, *, read_committed, wait_ms):
    """Give a consumer at the beginning of all partitions of a topic, and their numbers."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "consumed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": wait_ms,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if read_committed else "read_uncommitted",
        }
    )
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=LONG).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
        yield consumer, partitions
    finally:
        consumer.close()
