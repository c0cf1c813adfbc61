"""Consumers that are closed at the end, and members of groups that poll in threads of their own."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import threading
import time

import pytest
from tests.waiting import LONG, collect

from sparkrelay.consumer import Consumer
from sparkrelay.errors import WakeupException

_numbers = itertools.count(1)


@pytest.fixture
def group():
    """A group id that no other test has."""
    return f"group-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def make_consumer(kafka):
    """`make_consumer(group_id="g", enable_auto_commit=False, ...)`: settings with underscores for dots."""
    made = []

    def make(*, assignors=(), fetching=True, **config):
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "auto.offset.reset": "earliest"}
        settings |= {key.replace("_", "."): value for key, value in config.items()}
        made.append(Consumer(settings, assignors=assignors, fetching=fetching))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close(5)


@pytest.fixture
def read():
    """`read(consumer, count)` polls until `count` records are there."""

    def read(consumer, count, **limits):
        return collect(
            lambda: consumer.poll(0.5, **limits).to_pylist(), lambda rows: len(rows) >= count, f"not {count} records"
        )

    return read


@pytest.fixture
def polls_of():
    """`polls_of(consumer)` is a queue of what one `poll(3600)` after another returns: a stall adds nothing."""
    polling = []

    def start(consumer):
        tables = queue.Queue()

        def run():
            with contextlib.suppress(WakeupException):
                while True:
                    tables.put(consumer.poll(3600))

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        polling.append((consumer, thread))
        return tables

    yield start
    for consumer, thread in polling:
        consumer.wakeup()
        thread.join(LONG)


@pytest.fixture
def make_again(kafka_admin, wait_until):
    """`make_again(topic, absent_seconds=0)`: delete a topic and make one of that name; the broker knows of it."""
    from confluent_kafka import KafkaException as ConfluentError, TopicCollection
    from confluent_kafka.admin import NewTopic

    def id_of(topic):
        try:
            return str(kafka_admin.describe_topics(TopicCollection([topic]))[topic].result(LONG).topic_id)
        except ConfluentError:
            return None

    def make(topic, absent_seconds=0):
        old = id_of(topic)
        kafka_admin.delete_topics([topic])[topic].result(LONG)
        time.sleep(absent_seconds)  # clients may learn meanwhile that the topic is gone

        def made():
            try:
                kafka_admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])[topic].result(LONG)
            except ConfluentError:
                return False
            return True

        wait_until(made, f"topic {topic} could not be made again")
        # The controller answers first. Until the broker knows, too, it accepts commits for the old topic.
        wait_until(lambda: id_of(topic) not in {None, old}, f"the broker still shows the old {topic}")

    return make


class Member:
    """A group member that polls in its own thread and notes what happens to it."""

    def __init__(self, consumer, topics, owners, hooks):
        self.consumer, self.topics, self.owners, self.hooks = consumer, topics, owners, hooks
        self.held, self.story, self.errors = set(), [], []
        self.read = []  # (topic, partition, offset)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        self.consumer.subscribe(self.topics, on_assigned=self._assigned, on_revoked=self._revoked, on_lost=self._lost)
        while not self._stop.is_set():
            try:
                table = self.consumer.poll(0.2)
                self.read += zip(*(table[c].to_pylist() for c in ("topic", "partition", "offset")), strict=True)
            except WakeupException:
                continue
            except Exception as error:  # noqa: BLE001 - the test looks at it
                self.errors.append(error)
        if self._leaving:
            self.consumer.close(10)

    def _assigned(self, consumer, partitions):
        assert consumer is self.consumer
        for partition in partitions:
            self.owners.take(partition, self)
        self.hooks.get("assigned", lambda *_: None)(self, partitions)
        self.story.append(("assigned", tuple(partitions)))
        self.held |= set(partitions)  # last: who sees it may look at all that the callback did

    def _revoked(self, consumer, partitions):
        self.hooks.get("revoked", lambda *_: None)(self, partitions)
        for partition in partitions:
            self.owners.give(partition, self)
        self.held -= set(partitions)
        self.story.append(("revoked", tuple(partitions)))

    def _lost(self, consumer, partitions):
        for partition in partitions:
            self.owners.give(partition, self)
        self.held -= set(partitions)
        self.story.append(("lost", tuple(partitions)))

    def stop(self, *, leave=True):
        self._leaving = leave
        self._stop.set()
        self.consumer.wakeup()
        self._thread.join(LONG)
        assert not self._thread.is_alive()
        # It may have come when nobody waited any more; the test's own next call is not meant.
        self.consumer._session.mailbox.take_wakeup()

    def vanish(self):
        """Stop as a killed process would: it does not leave."""
        self._leaving = False
        self.consumer._network.stop(5)
        self._stop.set()
        self._thread.join(LONG)
        for partition in self.held:
            self.owners.give(partition, self)


class Owners:
    """Who owns what, over all members of a test; notes whoever takes what another still has."""

    def __init__(self):
        self._lock, self._owner, self.clashes = threading.Lock(), {}, []

    def take(self, partition, member):
        with self._lock:
            if partition in self._owner:
                self.clashes.append((partition, member))
            self._owner[partition] = member

    def give(self, partition, member):
        with self._lock:
            if self._owner.get(partition) is member:
                del self._owner[partition]


@pytest.fixture
def members(make_consumer, group):
    """`members(topics, **config)` starts a member; `members.owners.clashes` must stay empty.

    `without` names settings of the fixture's own that are not to be given.
    """
    owners, made = Owners(), []

    def make(topics, *, hooks=None, without=(), **config):
        settings = {
            "group_id": group,
            "partition_assignment_strategy": "cooperative-sticky",
            "heartbeat_interval_ms": 200,
            "session_timeout_ms": 6000,
            "enable_auto_commit": False,
        }
        settings = {key: value for key, value in settings.items() if key not in without}
        consumer = make_consumer(**settings | config)
        made.append(Member(consumer, topics, owners, hooks or {}))
        return made[-1]

    make.owners = owners
    yield make
    for member in made:
        with contextlib.suppress(AssertionError):
            member.stop(leave=False)
