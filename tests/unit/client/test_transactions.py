"""Coordinators that move, transactions that are still being ended: what a healthy broker hardly ever shows."""

from collections import Counter
from types import SimpleNamespace

import pytest

from sparkrelay.client.config import ClientConfig
from sparkrelay.client.coordinators import CoordinatorCache, CoordinatorKind
from sparkrelay.client.flows import run_flow
from sparkrelay.client.transactions import ProducerIdentity, TransactionCoordinator
from sparkrelay.errors import (
    AuthorizationException,
    BrokerResponseException,
    CommitFailedException,
    DisconnectException,
    ProducerFencedException,
    TimeoutException,
)
from sparkrelay.types import TopicPartition

CONFIG = ClientConfig(bootstrap_servers="a:1", retry_backoff_ms=1, retry_backoff_max_ms=2)
IN = TopicPartition("in", 0)


class Cluster:
    """Coordinates by `homes` (key -> broker); `codes[api]` are error codes to give first, one a request."""

    def __init__(self, homes, **codes):
        self.homes = homes
        self.codes = {api: list(found) for api, found in codes.items()}
        self.asked = Counter()
        self.epochs = {}
        self.ended = []

    def __call__(self, request, node):
        api = request.name.removesuffix("Request")
        self.asked[api] += 1
        given = self.codes.get(api)
        code = given.pop(0) if given else 0
        if isinstance(code, Exception):
            return code
        return getattr(self, api)(request, node, code)

    def FindCoordinator(self, request, node, code):
        found = [
            SimpleNamespace(key=k, node_id=self.homes[k], error_code=code, error_message="")
            for k in request.coordinator_keys
        ]
        return SimpleNamespace(coordinators=found)

    def InitProducerId(self, request, node, code):
        name = request.transactional_id
        if not code and node != self.homes[name]:
            code = 16
        if not code:
            self.epochs[name] = self.epochs.get(name, -1) + 1
        return SimpleNamespace(error_code=code, producer_id=7, producer_epoch=self.epochs.get(name, -1))

    def TxnOffsetCommit(self, request, node, code):
        part = SimpleNamespace(
            partition_index=0, error_code=code or (0 if node == self.homes[request.group_id] else 16)
        )
        return SimpleNamespace(topics=[SimpleNamespace(name="in", partitions=[part])])

    def EndTxn(self, request, node, code):
        if not code and node != self.homes[request.transactional_id]:
            code = 16
        if not code:
            self.ended.append((request.transactional_id, request.committed))
        return SimpleNamespace(error_code=code, producer_id=7, producer_epoch=request.producer_epoch + 1)


@pytest.fixture
def make(scripted):
    def build(cluster, timeout=5):
        client = scripted(cluster, CONFIG)
        client.metadata._brokers = dict.fromkeys(range(10))
        return TransactionCoordinator(client, timeout=timeout)

    return build


def test_all_ids_are_found_with_one_request_and_opened(make):
    cluster = Cluster({f"t{i}": i % 3 for i in range(9)})
    opened = make(cluster).init([f"t{i}" for i in range(9)], transaction_timeout_ms=1)
    assert opened["t4"] == ProducerIdentity("t4", 7, 0)
    assert cluster.asked == {"FindCoordinator": 1, "InitProducerId": 9}


@pytest.mark.parametrize("code", [14, 15, 16, 51, 7, DisconnectException("gone")])
def test_opening_waits_out_what_passes(make, code):
    cluster = Cluster({"t": 1}, InitProducerId=[code, code])
    assert make(cluster).init(["t"], transaction_timeout_ms=1)["t"].epoch == 0
    assert cluster.asked["InitProducerId"] == 3


@pytest.mark.parametrize("code", [14, 15, DisconnectException("gone")])
def test_finding_waits_until_the_coordinators_are_up(make, code):
    cluster = Cluster({"t": 1}, FindCoordinator=[code, code])
    make(cluster).init(["t"], transaction_timeout_ms=1)
    assert cluster.asked["FindCoordinator"] == 3


def test_a_coordinator_that_moved_is_looked_up_again(make):
    cluster = Cluster({"t": 1, "g": 2})
    transactions = make(cluster)
    identity = transactions.init(["t"], transaction_timeout_ms=1)["t"]
    cluster.homes.update(t=3, g=4)
    assert transactions.commit({identity: {IN: 1}}, "g")["t"] == ProducerIdentity("t", 7, 1)
    cluster.homes.update(g=5)
    assert transactions.commit({ProducerIdentity("t", 7, 1): {IN: 2}}, "g")["t"].epoch == 2
    assert cluster.ended == [("t", True), ("t", True)]


@pytest.mark.parametrize("api", ["TxnOffsetCommit", "EndTxn"])
@pytest.mark.parametrize("code", [14, 15, 16, 51, DisconnectException("gone")])
def test_committing_waits_out_what_passes(make, api, code):
    cluster = Cluster({"t": 1, "g": 2}, **{api: [code, code]})
    transactions = make(cluster)
    identity = transactions.init(["t"], transaction_timeout_ms=1)["t"]
    assert transactions.commit({identity: {IN: 1}}, "g")["t"].epoch == 1
    assert cluster.asked[api] == 3
    assert cluster.ended == [("t", True)]


@pytest.mark.parametrize(
    ("api", "code", "error"),
    [
        ("TxnOffsetCommit", 22, CommitFailedException),
        ("TxnOffsetCommit", 25, CommitFailedException),
        ("TxnOffsetCommit", 47, ProducerFencedException),
        ("TxnOffsetCommit", 30, AuthorizationException),
        ("EndTxn", 90, ProducerFencedException),
        ("EndTxn", 47, ProducerFencedException),
        ("EndTxn", 48, BrokerResponseException),
    ],
)
def test_what_does_not_pass_is_the_outcome_of_that_task_only(make, api, code, error):
    cluster = Cluster({"t": 1, "u": 1, "g": 1}, **{api: [code]})
    transactions = make(cluster)
    opened = transactions.init(["t", "u"], transaction_timeout_ms=1)
    done = transactions.commit({identity: {IN: 1} for identity in opened.values()}, "g")
    assert type(done["t"]) is error
    assert done["u"] == ProducerIdentity("u", 7, 1)
    assert cluster.ended == [("u", True)]


def test_offsets_that_were_refused_leave_the_transaction_open(make):
    cluster = Cluster({"t": 1, "g": 1}, TxnOffsetCommit=[22])
    transactions = make(cluster)
    identity = transactions.init(["t"], transaction_timeout_ms=1)["t"]
    failed = transactions.commit({identity: {IN: 1}}, "g")["t"]
    assert "abort the transaction" in str(failed)
    assert cluster.asked["EndTxn"] == 0
    assert transactions.abort([identity])["t"].epoch == 1
    assert cluster.ended == [("t", False)]


def test_a_missing_permission_is_raised_at_once(make):
    with pytest.raises(AuthorizationException, match="transaction t"):
        make(Cluster({"t": 1}, FindCoordinator=[53])).init(["t"], transaction_timeout_ms=1)


def test_an_outcome_that_stays_unknown_says_so(make):
    cluster = Cluster({"t": 1, "g": 1}, EndTxn=[DisconnectException("broker 1 is away")] * 1000)
    transactions = make(cluster, timeout=0.1)
    identity = transactions.init(["t"], transaction_timeout_ms=1)["t"]
    failed = transactions.commit({identity: {IN: 1}}, "g")["t"]
    assert isinstance(failed, TimeoutException)
    assert "broker 1 is away" in str(failed)


def test_no_tasks_no_requests(make):
    cluster = Cluster({})
    transactions = make(cluster)
    assert transactions.init([], transaction_timeout_ms=1) == {}
    assert transactions.commit({}, "g") == {}
    assert not cluster.asked


def test_a_coordinator_missing_from_the_metadata_is_looked_up_until_it_is_there(scripted):
    cluster = Cluster({"g": 1})
    client = scripted(cluster, CONFIG)
    refresh = client.request_metadata

    def found_at_the_second_request(topics):
        if client.metadata_requests:
            client.metadata._brokers = {1: None}
        return refresh(topics)

    client.request_metadata = found_at_the_second_request
    cache = CoordinatorCache(client)
    run_flow(client, "finding", cache.locate(CoordinatorKind.GROUP, ["g"]), 5)
    assert cache.get(CoordinatorKind.GROUP, "g") == 1
    assert len(client.metadata_requests) == 2
