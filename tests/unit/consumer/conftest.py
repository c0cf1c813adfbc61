"""A clock that tests move, a cluster without brokers, managers that tests drive, and answers of a broker for them."""

from __future__ import annotations

import uuid
from types import SimpleNamespace

import pytest
from kafka.protocol.metadata import MetadataResponse
from tests.unit.consumer.fetched_data import T0, T1
from tests.unit.consumer.surroundings import Asker, Committing

from sparkrelay.client.backoff import Backoff
from sparkrelay.client.metadata import Metadata
from sparkrelay.consumer.base.call import Call
from sparkrelay.consumer.base.mailbox import Mailbox
from sparkrelay.consumer.base.requests import RequestState
from sparkrelay.consumer.base.subscription import SubscriptionState
from sparkrelay.consumer.fetch.fetch_buffer import FetchBuffer
from sparkrelay.consumer.group.coordinator import CoordinatorManager
from sparkrelay.consumer.offsets.offsets import OffsetsManager


def make_metadata(topics, *, brokers=(1,), leaders=None, ids=None):
    """A `Metadata` with `topics` = {name: partition count}; leaders default to the first broker."""
    metadata = Metadata()
    metadata.update(metadata_response(topics, brokers=brokers, leaders=leaders, ids=ids), requested=None)
    return metadata


def metadata_response(topics, *, brokers=(1,), leaders=None, ids=None, epoch=0):
    leaders, ids = leaders or {}, ids or {}
    make = MetadataResponse.MetadataResponseTopic
    return MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(node_id=b, host="h", port=b, rack=None) for b in brokers],
        cluster_id="c",
        controller_id=brokers[0],
        topics=[
            make(
                name=name,
                topic_id=ids.get(name, uuid.uuid5(uuid.NAMESPACE_DNS, name)),
                is_internal=False,
                error_code=0,
                partitions=[
                    make.MetadataResponsePartition(
                        error_code=0,
                        partition_index=p,
                        leader_id=leaders.get((name, p), brokers[0]),
                        leader_epoch=epoch,
                        replica_nodes=list(brokers),
                        isr_nodes=list(brokers),
                        offline_replicas=[],
                    )
                    for p in range(count)
                ],
            )
            for name, count in topics.items()
        ],
    )


def namespace(**fields):
    return SimpleNamespace(**fields)


class Driver:
    """Polls managers and keeps what they want sent, by request name; time moves only on purpose."""

    def __init__(self, *managers):
        self.managers = managers
        self.now = 0.0
        self.waiting = []
        self.waits = {}
        self.dropped = []

    def poll(self):
        """Poll until nobody wants to send any more; return the names of new requests."""
        new = []
        while True:
            sent = []
            for manager in self.managers:
                result = manager.poll(self.now)
                self.waits[type(manager).__name__] = result.wait
                self.dropped += result.dropped
                sent += result.requests
            if not sent:
                return new
            self.waiting += sent
            new += [name_of(unsent) for unsent in sent]

    def pass_time(self, seconds):
        self.now += seconds
        return self.poll()

    def find(self, name):
        for unsent in self.waiting:
            if name_of(unsent) == name:
                return unsent
        raise AssertionError(f"no {name} among {[name_of(u) for u in self.waiting]}")

    def answer(self, name, message=None, error=None):
        """Answer the oldest request of a kind; return it."""
        unsent = self.find(name)
        self.waiting = [one for one in self.waiting if one is not unsent]
        unsent.handle(message, error, self.now)
        return unsent.request


def name_of(unsent):
    return type(unsent.request).__name__.removesuffix("Request")


@pytest.fixture
def make_call():
    return lambda what="a call", deadline=1e9: Call(what, deadline)


@pytest.fixture
def make_state():
    return lambda: RequestState(Backoff(0.1, 1.0, jitter=0.0))


@pytest.fixture
def driver():
    return Driver


@pytest.fixture
def cluster():
    return make_metadata


@pytest.fixture
def message():
    return namespace


@pytest.fixture
def metadata_message():
    return metadata_response


@pytest.fixture
def finding(driver, cluster, make_state):
    failures, asker = [], Asker()
    manager = CoordinatorManager(
        "g", metadata=cluster({}, brokers=(1, 2)), topics=asker, fail=failures.append, state=make_state()
    )
    manager.failures, manager.asker, manager.driver = failures, asker, driver(manager)
    return manager


@pytest.fixture
def committing(driver, cluster, make_state):
    return Committing(driver, cluster, make_state)


@pytest.fixture
def listing(driver, cluster, make_state):
    stale = []
    manager = OffsetsManager(
        cluster({"t": 2}, brokers=(1, 2), leaders={("t", 1): 2}),
        stale=stale.append,
        make_state=make_state,
        timeout_ms=1000,
    )
    manager.stale_, manager.driver = stale, driver(manager)
    return manager


@pytest.fixture
def buffering():
    subscription, mailbox, resets = SubscriptionState(), Mailbox(), []
    buffer = FetchBuffer(
        subscription,
        mailbox,
        read_committed=True,
        check_crcs=True,
        max_decompressed=1 << 20,
        out_of_range=lambda p, o: resets.append((p, o)),
    )
    buffer.subscription, buffer.resets = subscription, resets
    subscription.assign_by_hand([T0, T1])
    subscription.seek(T0, 0)
    subscription.seek(T1, 0)
    return buffer
