"""The producer against a model of a partition leader: what it must keep is order, once each, whatever fails."""

import struct
import uuid
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from sparkrelay.client import produce
from sparkrelay.client.broker_errors import ErrorCode, is_retriable
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.produce import Acknowledged, Producer
from sparkrelay.client.transactions import ProducerIdentity
from sparkrelay.errors import (
    AuthorizationException,
    BrokerResponseException,
    DisconnectException,
    KafkaException,
    ProducerFencedException,
    RecordRefusedException,
    RecordTooLargeException,
    TimeoutException,
    UnknownTopicException,
)
from sparkrelay.types import TopicPartition

CONFIG = ClientConfig(bootstrap_servers="a:1", retry_backoff_ms=1, retry_backoff_max_ms=2, max_request_size=1000)
A, B, C = (TopicPartition("t", p) for p in range(3))


def batch(sequence, records=1, size=100, producer_id=9, epoch=3):
    data = bytearray(size)
    struct.pack_into(">i", data, 23, records - 1)
    struct.pack_into(">qhii", data, 43, producer_id, epoch, sequence, records)
    return bytes(data)


def sequence_of(data):
    return struct.unpack_from(">i", data, 53)[0], struct.unpack_from(">i", data, 57)[0]


class Leader:
    """Appends batches as a broker does: in sequence, once; `faults` decides about each batch or request before that."""

    def __init__(self, faults=lambda kind: None):
        self.faults = faults
        self.log = {}
        self.offsets = {}
        self.requests = []

    def __call__(self, request, node):
        self.requests.append(request)
        before = self.faults("request")
        if before == "lost":
            return DisconnectException("lost before it was read")
        parts = {}
        for topic, partitions in request._topics.items():
            for partition, data in partitions.items():
                code, offset = self.append(TopicPartition(topic, partition), data)
                parts.setdefault(topic, []).append(
                    SimpleNamespace(index=partition, error_code=code, base_offset=offset, error_message=None)
                )
        if before == "unanswered":
            return DisconnectException("lost after it was carried out")
        return SimpleNamespace(
            responses=[SimpleNamespace(name=t, partition_responses=found) for t, found in parts.items()]
        )

    def append(self, tp, data):
        fault = self.faults("batch")
        if fault:
            return fault, -1
        sequence, records = sequence_of(data)
        log = self.log.setdefault(tp, [])
        known = self.offsets.setdefault(tp, {})
        if sequence in known:
            return 0, known[sequence]
        if sequence != len(log):
            return 45, -1
        known[sequence] = len(log)
        log.extend(range(sequence, sequence + records))
        return 0, known[sequence]


def make(scripted, leader, leaders=None):
    client = scripted(leader, CONFIG, {A: 1, B: 1, C: 2} if leaders is None else leaders)
    return client, Producer(client)


def test_offsets_of_the_first_and_last_record_come_back(scripted):
    _client, producer = make(scripted, Leader())
    producer.send(A, batch(0, 3), transactional_id="x")
    producer.send(A, batch(3, 2), transactional_id="x")
    producer.send(C, batch(0, 1), transactional_id="x")
    assert producer.flush(5) == {A: Acknowledged(0, 4, 5), C: Acknowledged(0, 0, 1)}
    assert producer.flush(5) == {}


def test_records_for_a_topic_that_is_another_one_now_are_refused_for_good(scripted):
    """A batch for whatever topic has that name is sent again, as the metadata may be behind."""
    old, new = uuid.UUID(int=1), uuid.UUID(int=2)

    def refuses_old(request, node):
        ids = request._ids.values()
        code = 0 if set(ids) == {new} else ErrorCode.UNKNOWN_TOPIC_ID
        part = SimpleNamespace(index=0, error_code=code, base_offset=0, error_message=None)
        return SimpleNamespace(
            responses=[SimpleNamespace(name="", topic_id=i, partition_responses=[part]) for i in ids]
        )

    client, producer = make(scripted, refuses_old)
    shown = iter([old, old])
    client.metadata.topic_id = lambda topic: next(shown, new)
    producer.send(A, batch(0), transactional_id="x")
    assert producer.flush(5) == {A: Acknowledged(0, 0, 1)}
    assert client.metadata_requests
    shown = iter([old] * 3)
    producer.send(A, batch(1), transactional_id="x", topic_id=old)
    with pytest.raises(UnknownTopicException, match="t-0: UNKNOWN_TOPIC_ID"):
        producer.flush(5)


def test_partitions_of_one_leader_share_a_request_up_to_max_request_size(scripted):
    leader = Leader()
    client, producer = make(scripted, leader, {})  # no leader is known yet, so nothing goes out at once
    for tp in (A, B):
        for sequence in range(2):
            producer.send(tp, batch(sequence, size=400), transactional_id="x")
    client.leaders.update({A: 1, B: 1})
    producer.flush(5)
    shapes = [{p: [sequence_of(d)[0] for d in [data]] for p, data in r._topics["t"].items()} for r in leader.requests]
    assert shapes == [{0: [0], 1: [0]}, {0: [1], 1: [1]}]


def test_a_full_request_leaves_the_rest_to_the_next(scripted):
    leader = Leader()
    client, producer = make(scripted, leader, {})
    for tp in (A, B, C):
        producer.send(tp, batch(0, size=400), transactional_id="x")
    client.leaders.update({A: 1, B: 1, C: 1})
    producer.flush(5)
    assert [len(r._topics["t"]) for r in leader.requests] == [2, 1]


def test_transactions_never_share_a_request(scripted):
    leader = Leader()
    client, producer = make(scripted, leader, {})
    producer.send(A, batch(0), transactional_id="x")
    producer.send(B, batch(0), transactional_id="y")
    producer.send(C, batch(0), transactional_id=None)
    client.leaders.update({A: 1, B: 1, C: 1})
    producer.flush(5)
    assert {r._transactional_id for r in leader.requests} == {"x", "y", None}


def test_at_most_five_requests_are_under_way(scripted):
    client, producer = make(scripted, lambda *_: None)
    for sequence in range(20):
        producer.send(A, batch(sequence), transactional_id="x")
    assert not client.sent, "what comes next may share a request with them"
    producer.flush_each(0.01)
    assert len(client.sent) == 5


def test_what_gathers_goes_out_by_itself_before_it_is_much(scripted, monkeypatch):
    monkeypatch.setattr(produce, "_GATHERED_BYTES", 700)
    client, producer = make(scripted, lambda *_: None, {A: 1, B: 1, C: 1})
    producer.send(A, batch(0, size=100), transactional_id="x")
    producer.send(B, batch(0, size=100), transactional_id="x")
    assert not client.sent
    producer.send(C, batch(0, size=500), transactional_id="x")
    assert [sorted(request._topics["t"]) for request in client.sent] == [[0, 1, 2]]


def test_an_epoch_that_is_over_is_fenced_and_the_rest_is_not_sent(scripted):
    leader = Leader(lambda kind: 47 if kind == "batch" else None)
    _client, producer = make(scripted, leader)
    for sequence in range(20):
        producer.send(A, batch(sequence), transactional_id="x")
    with pytest.raises(
        ProducerFencedException, match=r"INVALID_PRODUCER_EPOCH \(47\).*producer id 9, epoch 3, .*id 'x'"
    ):
        producer.flush(5)
    assert len(leader.requests) == 5
    leader.faults = lambda kind: None
    producer.send(A, batch(0), transactional_id="x")
    assert producer.flush(5) == {A: Acknowledged(0, 0, 1)}


def test_one_transactions_failure_leaves_the_others_alone(scripted):
    leader = Leader()
    _client, producer = make(scripted, leader)
    original = leader.append
    leader.append = lambda tp, data: (48, -1) if tp == A else original(tp, data)
    producer.send(A, batch(0), transactional_id="x")
    producer.send(B, batch(0), transactional_id="y")
    flushed = producer.flush_each(5)
    assert flushed.acknowledged == {B: Acknowledged(0, 0, 1)}
    assert set(flushed.failed) == {"x"}
    assert isinstance(flushed.failed["x"], ProducerFencedException)


def test_a_gap_in_the_sequence_needs_another_epoch(scripted):
    """As behind a leader that has lost what was written before: repeating the batch cannot help."""
    _, producer = make(scripted, Leader())
    producer.send(A, batch(7), transactional_id="x")
    with pytest.raises(ProducerFencedException, match=r"OUT_OF_ORDER_SEQUENCE_NUMBER .* what it wrote before is lost"):
        producer.flush(5)


def test_sizes_beyond_a_limit_are_named(scripted):
    _, producer = make(scripted, Leader(lambda kind: 10 if kind == "batch" else None))
    with pytest.raises(RecordTooLargeException, match=r"1001 bytes for t-0 is larger than max.request.size=1000"):
        producer.send(A, batch(0, size=1001), transactional_id="x")
    producer.send(A, batch(0, size=900), transactional_id="x")
    with pytest.raises(RecordTooLargeException, match=r"1 records \(900 bytes\) to t-0: MESSAGE_TOO_LARGE"):
        producer.flush(5)


#: docs/how-to/bad-records.md has this table for readers; of codes that are not here, repeating helps, or nothing does.
WHOSE = {
    RecordTooLargeException: {10, 18},
    RecordRefusedException: {32, 43, 87},
    ProducerFencedException: {45, 47, 48, 49, 59, 90, 120},
    AuthorizationException: {29, 30, 31, 53, 65},
}


@pytest.mark.parametrize("code", [code for code in ErrorCode if code and not is_retriable(code) and code != 46])
def test_a_refusal_says_whether_the_record_the_task_or_the_topic_is_to_blame(scripted, code):
    _, producer = make(scripted, Leader(lambda kind: code if kind == "batch" else None))
    producer.send(A, batch(0), transactional_id="x")
    with pytest.raises(KafkaException, match=rf"{code.name} \({int(code)}\)") as refused:
        producer.flush(5)
    wanted = {kind for kind, codes in WHOSE.items() if code in codes}
    assert {kind for kind in WHOSE if isinstance(refused.value, kind)} == wanted


def test_what_is_no_batch_is_refused(scripted):
    _, producer = make(scripted, Leader())
    with pytest.raises(ValueError, match="not a record batch"):
        producer.send(A, b"hello", transactional_id="x")


def test_a_very_late_duplicate_counts_as_written(scripted):
    _, producer = make(scripted, Leader(lambda kind: 46 if kind == "batch" else None))
    producer.send(A, batch(0, 4), transactional_id="x")
    assert producer.flush(5) == {A: Acknowledged(-1, -1, 4)}


def test_a_missing_topic_is_named_when_time_runs_out(scripted):
    client, producer = make(scripted, Leader(), {})
    client.metadata._errors["t"] = 3
    producer.send(A, batch(0), transactional_id="x")
    with pytest.raises(TimeoutException, match=r"t-0 were not all acknowledged.*UNKNOWN_TOPIC_OR_PARTITION"):
        producer.flush(0.05)
    assert client.metadata_requests


def test_a_timeout_leaves_nothing_behind_for_the_next_transaction(scripted):
    silent = []
    leader = Leader()
    _client, producer = make(scripted, lambda r, n: None if not silent else leader(r, n))
    producer.send(A, batch(0), transactional_id="x")
    with pytest.raises(TimeoutException):
        producer.flush(0.02)
    silent.append(1)
    producer.send(B, batch(0), transactional_id="x")
    assert producer.flush(5) == {B: Acknowledged(0, 0, 1)}


def test_a_topic_that_vanishes_is_retried_until_time_runs_out(scripted):
    client, producer = make(scripted, Leader(lambda kind: 3 if kind == "batch" else None))
    producer.send(A, batch(0), transactional_id="x")
    with pytest.raises(TimeoutException, match="UNKNOWN_TOPIC_OR_PARTITION"):
        producer.flush(1.0)
    assert len(client.sent) > 1
    assert issubclass(UnknownTopicException, Exception)


def test_offsets_are_right_when_a_lost_answer_is_repeated_after_later_ones(scripted):
    answers = iter(["unanswered"])
    _, producer = make(scripted, Leader(lambda kind: next(answers, None) if kind == "request" else None))
    for sequence in range(3):
        producer.send(A, batch(sequence), transactional_id="x")
    assert producer.flush(5) == {A: Acknowledged(0, 2, 3)}


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    faults=st.lists(st.sampled_from(["lost", "unanswered", 6, 19, 51, None, None, None]), max_size=40),
    batches=st.lists(st.tuples(st.sampled_from([A, B, C]), st.integers(1, 5)), min_size=1, max_size=30),
)
def test_whatever_fails_each_record_is_written_once_and_in_order(scripted, faults, batches):
    left = list(faults)

    def fault(kind):
        if left and (left[0] is None or isinstance(left[0], str) == (kind == "request")):
            return left.pop(0)
        return None

    leader = Leader(fault)
    _, producer = make(scripted, leader)
    totals = {}
    for tp, records in batches:
        producer.send(tp, batch(totals.get(tp, 0), records), transactional_id="x")
        totals[tp] = totals.get(tp, 0) + records
    acknowledged = producer.flush(20)
    assert acknowledged == {tp: Acknowledged(0, n - 1, n) for tp, n in totals.items()}
    assert dict(leader.log.items()) == {tp: list(range(n)) for tp, n in totals.items()}


# -- transactions whose partitions are added by request --------------------------------------------------------------

OLDER = ProducerIdentity("tx", 9, 3, version=0)


class Joinable(Leader):
    """A leader that refuses what was not added; `refusals` are error codes to answer to adding first."""

    def __init__(self, refusals=(), faults=lambda kind: None):
        super().__init__(faults)
        self.refusals = list(refusals)
        self.members = set()
        self.asked = []

    def __call__(self, request, node):
        if request.name == "FindCoordinatorRequest":
            found = [SimpleNamespace(key=k, node_id=5, error_code=0) for k in request.coordinator_keys]
            return SimpleNamespace(coordinators=found)
        if request.name != "AddPartitionsToTxnRequest":
            return super().__call__(request, node)
        topics = [(t.name, p) for t in request.v3_and_below_topics for p in t.partitions]
        self.asked.append(topics)
        code = self.refusals.pop(0) if self.refusals else 0
        if isinstance(code, Exception):
            return code
        if not code:
            self.members |= {TopicPartition(*where) for where in topics}
        return SimpleNamespace(
            results_by_topic_v3_and_below=[
                SimpleNamespace(
                    name=name, results_by_partition=[SimpleNamespace(partition_index=p, partition_error_code=code)]
                )
                for name, p in topics
            ]
        )

    def append(self, tp, data):
        assert tp in self.members, f"{tp} was written to before it was added"
        return super().append(tp, data)


def make_joining(scripted, leader):
    client, producer = make(scripted, leader)
    client.metadata._brokers = {5: None}
    return producer


@pytest.mark.parametrize("refusals", [[], [51, 51], [14], [16, 15], [DisconnectException("gone")]])
def test_partitions_are_added_before_they_are_written_to(scripted, refusals):
    leader = Joinable(refusals)
    producer = make_joining(scripted, leader)
    producer.begin(OLDER)
    for sequence in range(3):
        for tp in (A, B, C):
            producer.send(tp, batch(sequence), transactional_id="tx")
    assert {tp: done.records for tp, done in producer.flush(5).items()} == {A: 3, B: 3, C: 3}
    assert len(leader.asked) <= len(refusals) + 2, "what is sent while one request is out travels together"
    assert {r._max_version for r in leader.requests} == {11}


def test_each_round_adds_its_partitions_anew(scripted):
    leader = Joinable()
    producer = make_joining(scripted, leader)
    for sequence in range(2):
        leader.members.clear()
        producer.begin(OLDER)
        producer.send(A, batch(sequence), transactional_id="tx")
        producer.flush(5)
    assert len(leader.asked) == 2


@pytest.mark.parametrize(("code", "error"), [(90, ProducerFencedException), (47, ProducerFencedException), (48, None)])
def test_a_transaction_that_takes_no_partitions_fails_at_once_and_alone(scripted, code, error):
    leader = Joinable([code])
    producer = make_joining(scripted, leader)
    producer.begin(OLDER)
    producer.send(A, batch(0), transactional_id="tx")
    leader.members.add(B)
    producer.send(B, batch(0), transactional_id="newer")
    # Nobody waits for time to run out: an hour would be over before the test.
    flushed = producer.flush_each(3600)
    assert type(flushed.failed.pop("tx")) is (error or BrokerResponseException)
    assert flushed.failed == {}
    assert flushed.acknowledged == {B: Acknowledged(0, 0, 1)}
    assert leader.log.keys() == {B}


def test_partitions_that_cannot_be_added_in_time_say_why(scripted):
    producer = make_joining(scripted, Joinable([51] * 10_000))
    producer.begin(OLDER)
    producer.send(A, batch(0), transactional_id="tx")
    with pytest.raises(TimeoutException, match="adding partitions to the transaction of tx .*t-0: CONCURRENT_TRANS"):
        producer.flush(0.2)


def test_what_needs_no_request_sends_none(scripted):
    leader = Joinable()
    leader.members.add(A)
    producer = make_joining(scripted, leader)
    producer.begin(ProducerIdentity("tx", 9, 3))
    producer.send(A, batch(0), transactional_id="tx")
    assert producer.flush(5) == {A: Acknowledged(0, 0, 1)}
    assert leader.asked == []


def test_whose_batch_was_refused_is_known(scripted):
    """Several tasks may write in one transaction."""
    leader = Leader(lambda kind: 10 if kind == "batch" else None)
    client, producer = make(scripted, leader)
    producer.send(A, batch(0), transactional_id="x", sender="one")
    client.leaders.update({A: 1})
    flushed = producer.flush_each(5)
    assert set(flushed.failed) == {"x"}
    assert flushed.blamed == {"x": "one"}
