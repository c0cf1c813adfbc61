"""One real Kafka for a whole test run, and the few tools that tests need around it.

Under pytest-xdist the workers share one broker: the first that needs it starts it, the others find its address in a
file, and the owner waits for the last of them before it stops it. All of it hangs on OS file locks, so that a
crashed worker holds nobody up.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run, however slow the machine: what fails was broken by the change at hand. New examples
# are looked for on purpose, with HYPOTHESIS_PROFILE=search.
settings.register_profile("repeat", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))

#: Its rack is there for those tests that look at racks. Under KIP-848 the broker says how soon a silent member is dead,
#: and it does not let its clients choose: 45 s would be long for tests.
BROKER = {
    "broker.rack": "rack-1",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "10000",
    # A change of the group is acted on at once, not once a second.
    "group.consumer.assignment.interval.ms": "0",
}

_numbers = itertools.count(1)


class SharedBroker:
    """What a worker that did not start the broker knows of it."""

    def __init__(self, bootstrap_servers):
        self.bootstrap_servers = bootstrap_servers


@contextmanager
def _flock(path, kind):
    with path.open("a") as lock:
        fcntl.flock(lock, kind)
        yield


@pytest.fixture(scope="session")
def kafka(tmp_path_factory):
    """The run's broker: `kafka.bootstrap_servers`. Never stop, pause or kill it: make a `DevKafka` of your own."""
    from sparkrelay.devkafka import DevKafka

    if "PYTEST_XDIST_WORKER" not in os.environ:
        with DevKafka(server_properties=BROKER) as broker:
            yield broker
        return

    folder = tmp_path_factory.getbasetemp().parent
    address, users, mutex = folder / "kafka.address", folder / "kafka.users", folder / "kafka.mutex"
    owned = None
    with users.open("a") as using:
        with _flock(mutex, fcntl.LOCK_EX):
            if address.exists():
                broker = SharedBroker(address.read_text())
            else:
                owned = broker = DevKafka(server_properties=BROKER).start()
                address.write_text(broker.bootstrap_servers)
            fcntl.flock(using, fcntl.LOCK_SH)
        try:
            yield broker
        finally:
            fcntl.flock(using, fcntl.LOCK_UN)
            if owned is not None:
                fcntl.flock(using, fcntl.LOCK_EX)  # granted when the last user has let go
                with _flock(mutex, fcntl.LOCK_EX):
                    address.unlink()
                owned.close()


@pytest.fixture
def kafka_admin(kafka):
    """confluent-kafka's admin client."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers})


@pytest.fixture
def make_topic(kafka_admin):
    """`make_topic("hint", partitions=1, config=None)` makes a topic and returns its name, which no other test has."""
    from confluent_kafka.admin import NewTopic

    def make(hint, partitions=1, config=None):
        name = f"{hint}-{os.getpid()}-{next(_numbers)}"
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        kafka_admin.create_topics([topic])[name].result(30)
        _wait(lambda: _has_leaders(kafka_admin, name, partitions), f"topic {name} has no leaders")
        return name

    return make


def _has_leaders(admin, name, partitions):
    found = admin.list_topics(name, timeout=10).topics[name].partitions
    return len(found) == partitions and all(p.leader >= 0 for p in found.values())


@pytest.fixture
def produce(kafka):
    """`produce(topic, rows, **producer_config)` writes rows and returns when all are acknowledged.

    A row is a `(key, value)` pair or a mapping with `key`, `value`, `partition`, `timestamp` (ms) and `headers`, each
    optional. Text is written as UTF-8, a dict or list as JSON. Without a partition the key's murmur2 decides, as in
    Java.
    """
    from confluent_kafka import Producer

    def send(topic, rows, **config):
        failed = []
        producer = Producer(
            {"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2_random", "linger.ms": 5}
            | {name.replace("_", "."): value for name, value in config.items()}
        )
        transactional = "transactional_id" in config
        if transactional:
            producer.init_transactions(30)
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
            producer.commit_transaction(30)
        left = producer.flush(60)
        assert not failed, failed[:3]
        assert not left, f"{left} records were not acknowledged within 60 s"

    return send


def _bytes(value):
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value).encode()


@pytest.fixture
def consumed(kafka):
    """`consumed(topic, read_committed=True)` returns what is in a topic now, as `(partition, offset, key, value)`.

    It reads to the ends as they are when it is called: the last stable offsets with `read_committed`. With
    `full=True` the rows are confluent-kafka's messages.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    def read(topic, read_committed=True, *, full=False):
        consumer = Consumer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": "consumed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
                "enable.partition.eof": True,
                "isolation.level": "read_committed" if read_committed else "read_uncommitted",
            }
        )
        try:
            partitions = sorted(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
            consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
            rows, open_ends = [], set(partitions)
            deadline = time.monotonic() + 60
            while open_ends:
                assert time.monotonic() < deadline, f"partitions {open_ends} of {topic} did not end within 60 s"
                for message in consumer.consume(10_000, 0.02):
                    if message.error() is None:
                        rows.append(message)
                    elif message.error().name() == "_PARTITION_EOF":
                        open_ends.discard(message.partition())
                    else:
                        raise AssertionError(message.error())
        finally:
            consumer.close()
        rows.sort(key=lambda m: (m.partition(), m.offset()))
        return rows if full else [(m.partition(), m.offset(), m.key(), m.value()) for m in rows]

    return read


def _wait(condition, complaint, timeout_s=120):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{complaint} after {timeout_s} s"
        time.sleep(0.02)


@pytest.fixture(scope="session")
def spark_home(tmp_path_factory):
    """A home for Spark's `local-cluster`, which writes below it: what PySpark brought, in a folder of the test run."""
    import pyspark

    home = tmp_path_factory.mktemp("spark-home")
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


@pytest.fixture
def wait_until():
    """`wait_until(condition, complaint, timeout_s=120)`: poll a condition; fail with the complaint."""
    return _wait


@pytest.fixture
def project_root():
    return Path(__file__).parents[1]
