"""Coordinators that move, transactions that are still being ended: what a healthy broker hardly ever shows."""

from collections import Counter
from types import SimpleNamespace

import pytest
from tests.waiting import LONG

from sparkrelay.client.config import ClientConfig
from sparkrelay.client.coordinators import CoordinatorCache, CoordinatorKind
from sparkrelay.client.exchanges import run_exchange
from sparkrelay.client.group_requests import OffsetAndMetadata
from sparkrelay.client.transaction_calls import offsets_by_request
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
    """Coordinates by `homes` (key -> broker); `codes[api]` are error codes to give first, one a request.

    `version` is its transaction.version; below 2 it keeps epochs as Kafka's coordinator does.
    """

    def __init__(self, homes, version=2, **codes):
        self.homes = homes
        self.version = version
        #: What is open below version 2: transactional id -> what was added to it.
        self.open = {}
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

    def ApiVersions(self, request, node, code):
        level = SimpleNamespace(name="transaction.version", max_version_level=self.version)
        return SimpleNamespace(finalized_features=[level] if self.version else None)

    def InitProducerId(self, request, node, code):
        name = request.transactional_id
        if not code and node != self.homes[name]:
            code = 16
        if not code and self.open.pop(name, None) is not None:
            # Below version 2: what is open is aborted, under the next epoch, whoever asks.
            self.epochs[name] += 1
            self.ended.append((name, False))
            code = 51
        if not code and request.producer_epoch not in {-1, self.epochs.get(name, -1)}:
            code = 90
        if not code:
            self.epochs[name] = self.epochs.get(name, -1) + 1
        return SimpleNamespace(error_code=code, producer_id=7, producer_epoch=self.epochs.get(name, -1))

    def AddOffsetsToTxn(self, request, node, code):
        name = request.transactional_id
        if not code and node != self.homes[name]:
            code = 16
        if not code and request.producer_epoch != self.epochs[name]:
            code = 90
        if not code:
            self.open.setdefault(name, set()).add(request.group_id)
        return SimpleNamespace(error_code=code)

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
            self.open.pop(request.transactional_id, None)
        return SimpleNamespace(error_code=code, producer_id=7, producer_epoch=request.producer_epoch + 1)


@pytest.fixture
def make(scripted):
    def build(cluster, timeout=LONG):
        client = scripted(cluster, CONFIG)
        client.metadata._brokers = dict.fromkeys(range(10))
        return TransactionCoordinator(client, timeout=timeout)

    return build


def test_all_ids_are_found_with_one_request_and_opened(make):
    cluster = Cluster({f"t{i}": i % 3 for i in range(9)})
    opened = make(cluster).init([f"t{i}" for i in range(9)], transaction_timeout_ms=1)
    assert opened["t4"] == ProducerIdentity("t4", 7, 0)
    assert cluster.asked == {"FindCoordinator": 1, "ApiVersions": 1, "InitProducerId": 9}


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


@pytest.mark.parametrize("api", ["TxnOffsetCommit", "EndTxn"])
def test_a_lost_epoch_names_the_transactional_id_and_that_it_recovers(make, api):
    transactions = make(Cluster({"t": 1, "g": 1}, **{api: [47]}))
    identity = transactions.init(["t"], transaction_timeout_ms=1)["t"]
    message = str(transactions.commit({identity: {IN: 1}}, "g")["t"])
    assert "INVALID_PRODUCER_EPOCH" in message
    # Offsets are committed by the group's coordinator; the epoch is not the group's.
    assert "transactional id 't' was opened later by another process, or its transaction stayed open" in message
    assert "An instance recovers by itself: it initializes the task again" in message


def test_offsets_that_were_refused_leave_the_transaction_open(make):
    cluster = Cluster({"t": 1, "g": 1}, TxnOffsetCommit=[22])
    transactions = make(cluster)
    identity = transactions.init(["t"], transaction_timeout_ms=1)["t"]
    failed = transactions.commit({identity: {IN: 1}}, "g")["t"]
    assert "abort the transaction" in str(failed)
    assert cluster.asked["EndTxn"] == 0
    assert transactions.abort([identity], "g")["t"].epoch == 1
    assert cluster.ended == [("t", False)]


def test_a_missing_permission_is_raised_at_once(make):
    with pytest.raises(AuthorizationException, match="transaction t"):
        make(Cluster({"t": 1}, FindCoordinator=[53])).init(["t"], transaction_timeout_ms=1)


def test_an_outcome_that_stays_unknown_says_so(make):
    cluster = Cluster({"t": 1, "g": 1}, EndTxn=[DisconnectException("broker 1 is away")] * 1000)
    transactions = make(cluster, timeout=1)
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


# -- transaction versions 0 and 1 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_older_committing_adds_the_group_and_renews_the_epoch(make, version):
    cluster = Cluster({"t": 1, "g": 2}, version)
    transactions = make(cluster)
    identity = transactions.init(["t"], transaction_timeout_ms=1)["t"]
    assert identity == ProducerIdentity("t", 7, 0, version)
    assert transactions.commit({identity: {IN: 1}}, "g")["t"] == ProducerIdentity("t", 7, 1, version)
    asked = [request.name for request in transactions._client.sent if not request.name.startswith("Find")]
    assert asked[-4:] == ["AddOffsetsToTxnRequest", "TxnOffsetCommitRequest", "EndTxnRequest", "InitProducerIdRequest"]
    assert cluster.ended == [("t", True)]


def test_an_older_epoch_is_renewed_with_the_timeout_it_was_opened_with(make):
    cluster = Cluster({"t": 1, "g": 2}, 0)
    identity = make(cluster).init(["t"], transaction_timeout_ms=1234)["t"]
    other = make(cluster)
    other.abort([other.commit({identity: {IN: 1}}, "g")["t"]], "g")
    renewed = [r.transaction_timeout_ms for r in other._client.sent if r.name == "InitProducerIdRequest"]
    assert set(renewed) == {1234}


def test_older_requests_are_of_versions_that_add_nothing_by_themselves(make):
    transactions = make(Cluster({"t": 1, "g": 2}, 0))
    identity = transactions.init(["t"], transaction_timeout_ms=1)["t"]
    transactions.commit({identity: {IN: 1}}, "g")
    newest = {request.name: request._max_version for request in transactions._client.sent}
    assert newest["TxnOffsetCommitRequest"] == 4
    assert newest["EndTxnRequest"] == 4


@pytest.mark.parametrize("api", ["AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn", "InitProducerId"])
@pytest.mark.parametrize("code", [14, 15, 16, 51, DisconnectException("gone")])
@pytest.mark.parametrize("verb", ["commit", "abort"])
def test_older_ending_waits_out_what_passes(make, api, code, verb):
    cluster = Cluster({"t": 1, "g": 2}, 0)
    transactions = make(cluster)
    identity = transactions.init(["t"], transaction_timeout_ms=1)["t"]
    cluster.codes[api] = [code, code]
    if verb == "commit":
        following = transactions.commit({identity: {IN: 1}}, "g")["t"]
    else:
        following = transactions.abort([identity], "g")["t"]
    assert following == ProducerIdentity("t", 7, 1 if verb == "commit" else 2, 0)
    assert cluster.ended == [("t", verb == "commit")]


def test_older_aborting_ends_the_epoch_with_the_transaction(make):
    cluster = Cluster({"t": 1}, 0)
    transactions = make(cluster)
    identity = transactions.init(["t"], transaction_timeout_ms=1)["t"]
    following = transactions.abort([identity], "g")["t"]
    assert following.epoch > identity.epoch + 1, "the markers' epoch lies between: it shuts the old one out"
    assert cluster.asked["EndTxn"] == 0
    assert cluster.ended == [("t", False)]


def test_an_older_zombie_that_aborts_does_not_touch_the_new_owners_transaction(make):
    cluster = Cluster({"t": 1, "g": 1}, 0)
    transactions = make(cluster)
    old = transactions.init(["t"], transaction_timeout_ms=1)["t"]
    new = transactions.init(["t"], transaction_timeout_ms=1)["t"]
    cluster.open["t"] = {"something"}
    assert isinstance(transactions.abort([old], "g")["t"], ProducerFencedException)
    assert cluster.ended == []
    assert transactions.commit({new: {IN: 1}}, "g")["t"].epoch == new.epoch + 1


@pytest.mark.parametrize("api", ["AddOffsetsToTxn", "InitProducerId"])
@pytest.mark.parametrize(("code", "error"), [(47, ProducerFencedException), (90, ProducerFencedException)])
def test_older_what_does_not_pass_is_the_outcome(make, api, code, error):
    cluster = Cluster({"t": 1, "g": 1}, 0)
    transactions = make(cluster)
    identity = transactions.init(["t"], transaction_timeout_ms=1)["t"]
    cluster.codes[api] = [code]
    assert isinstance(transactions.commit({identity: {IN: 1}}, "g")["t"], error)


def test_the_version_is_looked_at_whenever_an_id_is_opened(make):
    cluster = Cluster({"t": 1, "g": 1}, 1)
    transactions = make(cluster)
    identity = transactions.init(["t"], transaction_timeout_ms=1)["t"]
    cluster.version = 2
    following = transactions.commit({identity: {IN: 1}}, "g")["t"]
    assert following.version == 1, "what was opened under the older version goes on with it"
    assert transactions.init(["t"], transaction_timeout_ms=1)["t"].version == 2


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
    run_exchange(client, "finding", cache.locate(CoordinatorKind.GROUP, ["g"]), 5)
    assert cache._nodes == {(CoordinatorKind.GROUP, "g"): 1}
    assert len(client.metadata_requests) == 2


def test_offsets_that_a_broker_cannot_write_together_go_out_in_several_requests():
    offsets = {TopicPartition("in", number): number for number in range(300)}
    notes = dict.fromkeys(offsets, "x" * 4000)
    parts = list(offsets_by_request(offsets, notes))
    assert len(parts) == 3
    assert {p: commit for part in parts for p, commit in part.items()} == {
        p: OffsetAndMetadata(offset, notes[p]) for p, offset in offsets.items()
    }
    assert max(sum(len(notes[p]) for p in part) for part in parts) < 1 << 19
    assert list(offsets_by_request(offsets, {})) == [{at: OffsetAndMetadata(offset) for at, offset in offsets.items()}]
    assert list(offsets_by_request({}, {})) == []
