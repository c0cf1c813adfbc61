"""The transaction protocol on real brokers of every kind: lent producer ids, fencing, retries, restarts."""

import pickle
import subprocess
import sys
import uuid
from dataclasses import replace

import pytest
from tests.waiting import LONG

from sparkrelay.client.admin import LATEST, Admin, TopicSpec
from sparkrelay.client.group_requests import GroupMetadata, OffsetAndMetadata
from sparkrelay.client.kafka_client import Response
from sparkrelay.client.produce import Acknowledged, Producer
from sparkrelay.client.transactions import ProducerIdentity, TransactionCoordinator
from sparkrelay.errors import (
    BrokerResponseException,
    CommitFailedException,
    DisconnectException,
    ProducerFencedException,
    RecordTooLargeException,
    UnknownTopicException,
)
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration
TIMEOUT_MS = 60_000

#: Feature levels that were not raised after an upgrade, and an older Kafka. Before 3.6 leaders did not ask the
#: coordinator whether a partition is in a transaction: one is as those were.
BROKERS = {
    "version 2": None,
    "version 1": {"features": {"transaction.version": 1}},
    "version 0": {
        "features": {"transaction.version": 0},
        "server_properties": {"transaction.partition.verification.enable": "false"},
    },
    "Kafka 3.9": {"version": "3.9.1"},
}


#: What brokers speak since Kafka 4.0; `make test-all` tries the others too.
ALWAYS = {"version 2"}


@pytest.fixture(
    scope="module",
    params=[pytest.param(kind, marks=() if kind in ALWAYS else pytest.mark.long) for kind in BROKERS],
)
def broker_kind(request):
    return BROKERS[request.param]


@pytest.fixture(scope="module")
def kafka(kafka, broker_kind):
    from sparkrelay.devkafka import DevKafka

    if broker_kind is None:
        yield kafka
        return
    with DevKafka(heap_mb=384, **broker_kind) as broker:
        yield broker


def open_one(transactions, name):
    return transactions.init([name], transaction_timeout_ms=TIMEOUT_MS)[name]


def write(client, tp, data, identity):
    producer = Producer(client)
    producer.begin(identity)
    producer.send(tp, data, transactional_id=identity.transactional_id)
    return producer.flush(LONG)


def write_late(client, tp, data, identity):
    """Write as a worker does that had its partition added, and was paused before it wrote."""
    producer = Producer(client)
    producer.begin(identity)
    if identity.joins_by_request:
        producer._joins._transactions[identity.transactional_id].members.add(tp)
    producer.send(tp, data, transactional_id=identity.transactional_id)
    return producer.flush(LONG)


# In a process of its own: write under a producer id that somebody else opened.
LENT_WRITER = """
import pickle, sys
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.produce import Producer

servers, tp, batch, identity = pickle.load(sys.stdin.buffer)
with KafkaClient(ClientConfig(bootstrap_servers=servers)) as client:
    client.bootstrap(120)
    producer = Producer(client)
    producer.begin(identity)
    producer.send(tp, batch, transactional_id=identity.transactional_id)
    print(sum(done.records for done in producer.flush(120).values()))
"""


def write_in_another_process(kafka, tp, data, identity):
    order = kafka.bootstrap_servers, tp, bytes(data), identity
    done = subprocess.run(
        [sys.executable, "-c", LENT_WRITER],
        input=pickle.dumps(order),
        capture_output=True,
        timeout=LONG,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return int(done.stdout)


def ends_of_all(admin, tp):
    return admin.list_offsets({tp: LATEST}, read_committed=False)


@pytest.fixture
def decided(consumed, admin, wait_until):
    """`consumed`, once every transaction in the topic is decided: a commit answers before its markers are written."""

    def read(topic):
        for number in admin.partitions([topic])[topic]:
            tp = TopicPartition(topic, number)
            wait_until(lambda tp=tp: admin.list_offsets({tp: LATEST}) == ends_of_all(admin, tp), f"{tp}: no marker")
        return consumed(topic)

    return read


@pytest.mark.long
def test_two_processes_write_under_one_producer_id_and_a_third_commits(
    kafka, admin, transactions, make_topic, consumed, decided, batch
):
    out, source = make_topic("lent", partitions=2), make_topic("source")
    tp, other, position = TopicPartition(out, 0), TopicPartition(out, 1), TopicPartition(source, 0)
    identity = open_one(transactions, out)
    # The second continues the sequence of the first in one partition, and starts one in another.
    for where, rows, sequence in [(tp, ["a", "b"], 0), (tp, ["c"], 2), (other, ["d"], 0)]:
        data = batch(rows, identity, sequence=sequence)
        assert write_in_another_process(kafka, where, data, identity) == len(rows)
    assert consumed(out) == []
    assert admin.list_offsets({tp: LATEST}) == {tp: 0}
    assert admin.list_offsets({tp: LATEST}, read_committed=False) == {tp: 3}
    following = transactions.commit({identity: {position: 42}}, out)[out]
    assert following == replace(identity, epoch=identity.epoch + 1)
    assert [value for *_, value in decided(out)] == [b"a", b"b", b"c", b"d"]
    assert admin.committed_offsets(out, [position]) == {position: 42}
    assert admin.list_offsets({tp: LATEST}) == {tp: 4}  # three records and a marker


def test_the_next_epoch_starts_its_sequences_at_zero(client, transactions, make_topic, decided, batch):
    topic = make_topic("epochs")
    tp = TopicPartition(topic, 0)
    identity = open_one(transactions, topic)
    for number in range(5):
        assert identity.epoch == number
        write(client, tp, batch([str(number)], identity), identity)
        identity = transactions.commit({identity: {tp: number}}, topic)[topic]
    assert [value for *_, value in decided(topic)] == [b"0", b"1", b"2", b"3", b"4"]


def test_opening_an_id_again_fences_its_former_holder_and_aborts_what_it_left(
    client, transactions, make_topic, decided, batch, admin
):
    topic = make_topic("fenced")
    tp = TopicPartition(topic, 0)
    old = open_one(transactions, topic)
    write(client, tp, batch(["left behind"], old), old)
    new = open_one(transactions, topic)
    assert new.epoch > old.epoch or new.producer_id != old.producer_id
    # What was left is decided when init returns, so ends that are listed now are final.
    assert admin.list_offsets({tp: LATEST}) == admin.list_offsets({tp: LATEST}, read_committed=False)
    with pytest.raises(ProducerFencedException, match=rf"{topic}.*epoch {old.epoch}\b|epoch {old.epoch} of {topic}"):
        write(client, tp, batch(["zombie"], old, sequence=1), old)
    assert isinstance(transactions.commit({old: {tp: 1}}, topic)[topic], ProducerFencedException)
    assert isinstance(transactions.abort([old], topic)[topic], ProducerFencedException)
    write(client, tp, batch(["mine"], new), new)
    transactions.commit({new: {tp: 1}}, topic)
    assert [value for *_, value in decided(topic)] == [b"mine"]


def test_the_epoch_of_a_committed_transaction_writes_no_more(
    client, transactions, make_topic, decided, batch, admin, wait_until
):
    topic = make_topic("late")
    tp = TopicPartition(topic, 0)
    first = open_one(transactions, topic)
    write(client, tp, batch(["in time"], first), first)
    second = transactions.commit({first: {tp: 1}}, topic)[topic]
    # EndTxn is answered when the decision is in the coordinator's log; the partition knows of it a moment later.
    wait_until(lambda: admin.list_offsets({tp: LATEST})[tp] == 2, "no marker")
    with pytest.raises(ProducerFencedException):
        write(client, tp, batch(["late"], first, sequence=1), first)
    write(client, tp, batch(["next"], second), second)
    transactions.commit({second: {tp: 2}}, topic)
    assert [value for *_, value in decided(topic)] == [b"in time", b"next"]


def test_an_aborted_transaction_is_written_again_under_the_new_epoch(
    client, transactions, make_topic, decided, batch, admin
):
    topic = make_topic("again")
    tp = TopicPartition(topic, 0)
    identity = open_one(transactions, topic)
    write(client, tp, batch(["x", "y"], identity), identity)
    identity = transactions.abort([identity], topic)[topic]
    write(client, tp, batch(["x", "y"], identity), identity)
    assert isinstance(transactions.commit({identity: {tp: 2}}, topic)[topic], ProducerIdentity)
    assert [value for *_, value in decided(topic)] == [b"x", b"y"]
    assert admin.committed_offsets(topic, [tp]) == {tp: 2}


@pytest.mark.parametrize("sequence", [0, 1], ids=["nothing written before", "something written before"])
def test_a_worker_of_an_aborted_try_that_wakes_up_late_writes_nothing(
    client, transactions, make_topic, decided, batch, admin, sequence, wait_until
):
    topic = make_topic("asleep")
    tp = TopicPartition(topic, 0)
    old = open_one(transactions, topic)
    if old.joins_by_request:
        from sparkrelay.client.exchanges import run_exchange

        run_exchange(client, "joining", transactions._calls.add_partitions(old, [tp], "lane"), 30)
    if sequence:
        write(client, tp, batch(["failed"], old), old)
    new = transactions.abort([old], topic)[topic]
    assert isinstance(new, ProducerIdentity)
    if old.joins_by_request or sequence:
        # Its partition was in the transaction, so it gets the abort; the next transaction has not written yet.
        # (What arrives before the abort's marker belongs to the aborted transaction.)
        wait_until(lambda: admin.list_offsets({tp: LATEST}) == ends_of_all(admin, tp), "the abort has no marker")
        with pytest.raises(ProducerFencedException, match="may no longer write"):
            write_late(client, tp, batch(["late"], old, sequence=sequence), old)
    write(client, tp, batch(["again"], new), new)
    with pytest.raises(ProducerFencedException, match="may no longer write"):
        write_late(client, tp, batch(["later"], old, sequence=sequence + 1), old)
    transactions.commit({new: {tp: 1}}, topic)
    assert [value for *_, value in decided(topic)] == [b"again"]
    assert admin.list_offsets({tp: LATEST}) == ends_of_all(admin, tp)


def test_a_new_owner_shuts_out_a_worker_that_wakes_up_late(client, transactions, make_topic, decided, batch, admin):
    topic = make_topic("stolen")
    tp = TopicPartition(topic, 0)
    old = open_one(transactions, topic)
    write(client, tp, batch(["left"], old), old)
    new = open_one(transactions, topic)
    with pytest.raises(ProducerFencedException, match="may no longer write"):
        write_late(client, tp, batch(["late"], old, sequence=1), old)
    assert isinstance(transactions.abort([old], topic)[topic], ProducerFencedException)
    write(client, tp, batch(["mine"], new), new)
    # Also in the middle of its transaction.
    assert isinstance(transactions.abort([old], topic)[topic], ProducerFencedException)
    assert isinstance(transactions.commit({old: {tp: 9}}, topic)[topic], ProducerFencedException)
    assert isinstance(transactions.commit({new: {tp: 1}}, topic)[topic], ProducerIdentity)
    assert [value for *_, value in decided(topic)] == [b"mine"]
    assert admin.committed_offsets(topic, [tp]) == {tp: 1}


def test_who_was_fenced_and_is_the_owner_still_opens_again(client, transactions, make_topic, decided, batch):
    topic = make_topic("reopened")
    tp = TopicPartition(topic, 0)
    mine = open_one(transactions, topic)
    write(client, tp, batch(["undone"], mine), mine)
    open_one(transactions, topic)  # somebody who believed to be the owner
    assert isinstance(transactions.commit({mine: {tp: 1}}, topic)[topic], ProducerFencedException)
    mine = open_one(transactions, topic)
    write(client, tp, batch(["done"], mine), mine)
    assert isinstance(transactions.commit({mine: {tp: 1}}, topic)[topic], ProducerIdentity)
    assert [value for *_, value in decided(topic)] == [b"done"]


@pytest.mark.long
def test_hundreds_of_transactions_are_in_flight_at_once(
    client, transactions, make_topic, decided, batch, admin, wait_until
):
    topic, source = make_topic("hundreds", partitions=30), make_topic("inputs", partitions=300)
    tasks = {f"{topic}-{n}": n for n in range(300)}
    identities = transactions.init(tasks, transaction_timeout_ms=TIMEOUT_MS)
    for turn in range(3):
        producer = Producer(client)
        for name, n in tasks.items():
            producer.begin(identities[name])
            # Ten transactions share each partition, and each writes to two.
            for partition in {n % 30, (n + 7) % 30}:
                tp = TopicPartition(topic, partition)
                producer.send(tp, batch([f"{turn} {n}"], identities[name]), transactional_id=name)
        assert not producer.flush_each(60).failed
        if turn == 1:
            done = transactions.abort(identities.values(), topic)
        else:
            offsets = {identities[name]: {TopicPartition(source, n): turn + 1} for name, n in tasks.items()}
            done = transactions.commit(offsets, topic)
        assert [one for one in done.values() if not isinstance(one, ProducerIdentity)] == []
        identities = done
    everywhere = {TopicPartition(topic, p): LATEST for p in range(30)}
    wait_until(
        lambda: admin.list_offsets(everywhere) == admin.list_offsets(everywhere, read_committed=False), "no markers"
    )
    assert sorted(value.decode() for *_, value in decided(topic)) == sorted(
        2 * [f"{turn} {n}" for turn in (0, 2) for n in range(300)]
    )
    committed = admin.committed_offsets(topic, [TopicPartition(source, n) for n in range(300)])
    assert set(committed.values()) == {3}


def test_aborting_forgets_the_offsets_too(transactions, make_topic, admin, client):
    topic = make_topic("forgotten")
    tp = TopicPartition(topic, 0)
    identity = open_one(transactions, topic)
    from sparkrelay.client.exchanges import run_exchange

    calls = transactions._calls
    if identity.joins_by_request:
        run_exchange(client, "group", calls.add_offsets(identity, topic, "lane"), 30)
    offsets = calls.commit_offsets(identity, {tp: 9}, GroupMetadata(topic), notes={}, lane="lane")
    run_exchange(client, "offsets", offsets, 30)
    transactions.abort([identity], topic)
    assert admin.committed_offsets(topic, [tp]) == {}


def test_a_transaction_of_offsets_only_is_committed(transactions, make_topic, admin):
    topic = make_topic("offsets-only")
    tp = TopicPartition(topic, 0)
    identity = open_one(transactions, topic)
    following = transactions.commit({identity: {tp: 5}}, topic)[topic]
    assert following.epoch == identity.epoch + 1
    assert admin.committed_offsets(topic, [tp]) == {tp: 5}


def test_what_is_noted_of_a_partition_is_read_with_its_offset(transactions, make_topic, admin):
    topic = make_topic("notes", 3)
    first, second, third = (TopicPartition(topic, number) for number in range(3))
    identity = open_one(transactions, topic)
    note = "as far as it goes: \u00e4" * 100
    transactions.commit({identity: {first: 5, second: 6}}, topic, notes={first: note})
    found = admin.commits(topic, [first, second, third], stable=True)
    assert found == {first: OffsetAndMetadata(5, note), second: OffsetAndMetadata(6, "")}


def test_an_empty_transaction_may_be_aborted_but_not_committed(transactions, make_topic):
    topic = make_topic("empty")
    identity = open_one(transactions, topic)
    refused = transactions.commit({identity: {}}, topic)[topic]
    assert isinstance(refused, BrokerResponseException)
    assert refused.name == "INVALID_TXN_STATE"
    following = transactions.abort([identity], topic)[topic]
    assert isinstance(following, ProducerIdentity)
    assert isinstance(transactions.abort([following], topic)[topic], ProducerIdentity)


def test_many_tasks_are_committed_together_and_one_zombie_stops_nobody(
    client, transactions, make_topic, decided, batch, admin
):
    topic = make_topic("many", partitions=8)
    names = [f"{topic}-{p}" for p in range(8)]
    identities = transactions.init(names, transaction_timeout_ms=TIMEOUT_MS)
    stolen = open_one(transactions, names[3])
    producer = Producer(client)
    for p, name in enumerate(names):
        if p != 3:
            producer.begin(identities[name])
            producer.send(TopicPartition(topic, p), batch([name], identities[name]), transactional_id=name)
    assert all(a == Acknowledged(0, 0, 1) for a in producer.flush(LONG).values())
    done = transactions.commit({identities[name]: {TopicPartition(topic, p): p} for p, name in enumerate(names)}, topic)
    assert isinstance(done.pop(names[3]), ProducerFencedException)
    assert all(isinstance(outcome, ProducerIdentity) for outcome in done.values())
    assert [p for p, *_ in decided(topic)] == [0, 1, 2, 4, 5, 6, 7]
    committed = admin.committed_offsets(topic, [TopicPartition(topic, p) for p in range(8)])
    assert set(committed) == {TopicPartition(topic, p) for p in range(8) if p != 3}
    assert isinstance(transactions.abort([stolen], topic)[names[3]], ProducerIdentity)


def test_a_generation_that_is_over_commits_nothing_and_can_be_aborted(
    kafka, transactions, make_topic, admin, wait_until
):
    from confluent_kafka import Consumer

    topic = make_topic("generation")
    tp = TopicPartition(topic, 0)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": topic})
    try:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.05) is None and consumer.assignment(), "no assignment")
        identity = open_one(transactions, topic)
        stranger = GroupMetadata(topic, 1, "somebody")
        assert isinstance(
            transactions.commit({identity: {tp: 1}}, topic, member=stranger)[topic], CommitFailedException
        )
        identity = transactions.abort([identity], topic)[topic]
        # Without a member the transactional id alone fences, also while the group has members.
        assert isinstance(transactions.commit({identity: {tp: 2}}, topic)[topic], ProducerIdentity)
    finally:
        consumer.close()
    assert admin.committed_offsets(topic, [tp]) == {tp: 2}


LOSABLE = [
    "InitProducerIdRequest",
    "AddPartitionsToTxnRequest",
    "AddOffsetsToTxnRequest",
    "TxnOffsetCommitRequest",
    "EndTxnRequest",
    "renewal",
]


@pytest.mark.parametrize("lost", LOSABLE)
@pytest.mark.parametrize("verb", ["commit", "abort"])
def test_an_answer_that_is_lost_is_asked_for_again(client, transactions, make_topic, batch, decided, admin, lost, verb):
    topic = make_topic("lost")
    tp = TopicPartition(topic, 0)
    send, dropped = client.send, []
    expected = lost

    def send_and_lose_the_answer(request, **where):
        response = send(request, **where)
        if request.name != expected or dropped:
            return response
        client.wait([response], 30)
        assert response.error is None
        dropped.append(response)
        failed = Response(response.node)
        failed.finish(None, DisconnectException("the answer was lost"))
        return failed

    client.send = send_and_lose_the_answer
    identity = open_one(transactions, topic)
    if lost == "renewal":
        expected = "InitProducerIdRequest"
    write(client, tp, batch(["x"], identity), identity)
    if verb == "commit":
        following = transactions.commit({identity: {tp: 1}}, topic)[topic]
    else:
        following = transactions.abort([identity], topic)[topic]
    assert isinstance(following, ProducerIdentity)
    assert following.epoch > identity.epoch
    older, aborts = identity.joins_by_request, verb == "abort"
    sent = {
        "AddPartitionsToTxnRequest": older,
        "AddOffsetsToTxnRequest": older,
        "TxnOffsetCommitRequest": not aborts,
        "EndTxnRequest": not (older and aborts),
        "renewal": older,
    }
    assert bool(dropped) == sent.get(lost, True)
    assert [value for *_, value in decided(topic)] == ([b"x"] if verb == "commit" else [])
    assert admin.committed_offsets(topic, [tp]) == ({tp: 1} if verb == "commit" else {})
    write(client, tp, batch(["y"], following), following)
    assert isinstance(transactions.commit({following: {tp: 2}}, topic)[topic], ProducerIdentity)


def test_records_the_topic_refuses_are_named_with_their_size(client, transactions, make_topic, batch):
    topic = make_topic("small", config={"max.message.bytes": "1000"})
    identity = open_one(transactions, topic)
    with pytest.raises(RecordTooLargeException, match=rf"bytes\) to {topic}-0: MESSAGE_TOO_LARGE"):
        write(client, TopicPartition(topic, 0), batch(["x" * 2000], identity), identity)
    assert isinstance(transactions.abort([identity], topic)[topic], ProducerIdentity)


def test_a_batch_sent_twice_is_written_once(client, transactions, make_topic, decided, batch):
    topic = make_topic("twice")
    tp = TopicPartition(topic, 0)
    identity = open_one(transactions, topic)
    data = batch(["once"], identity)
    assert write(client, tp, data, identity) == write(client, tp, data, identity) == {tp: Acknowledged(0, 0, 1)}
    transactions.commit({identity: {tp: 1}}, topic)
    assert [value for *_, value in decided(topic)] == [b"once"]


def test_nothing_is_written_to_a_topic_that_was_created_again(
    client, transactions, make_topic, admin, batch, broker_kind
):
    """Brokers before Kafka 4.1, and those of older transaction versions, go by the name."""
    tp = TopicPartition(make_topic("again"), 0)
    old = uuid.UUID(admin.topic_ids([tp.topic])[tp.topic])
    identity = open_one(transactions, f"again-{tp.topic}")
    producer = Producer(client)
    producer.begin(identity)
    producer.send(tp, batch(["a", "b", "c"], identity), transactional_id=identity.transactional_id, topic_id=old)
    assert producer.flush(LONG)[tp].records == 3
    (identity,) = transactions.abort([identity], "g").values()
    admin.delete_topics([tp.topic])
    admin.create_topics({tp.topic: TopicSpec(1)})
    producer.begin(identity)
    producer.send(tp, batch(["a", "b", "c"], identity), transactional_id=identity.transactional_id, topic_id=old)
    if broker_kind is not None:
        assert producer.flush(LONG)[tp].records == 3
        return
    with pytest.raises(UnknownTopicException, match=f"{tp}: UNKNOWN_TOPIC_ID"):
        producer.flush(LONG)
    assert admin.list_offsets({tp: LATEST}, read_committed=False) == {tp: 0}


def test_records_outside_transactions(client, make_topic, decided, batch):
    topic = make_topic("plain")
    producer = Producer(client)
    for text in "abc":
        producer.send(TopicPartition(topic, 0), batch([text]), transactional_id=None)
    assert producer.flush(LONG) == {TopicPartition(topic, 0): Acknowledged(0, 2, 3)}
    assert [value for *_, value in decided(topic)] == [b"a", b"b", b"c"]


@pytest.mark.long
def test_a_broker_that_restarts_in_the_middle_loses_and_doubles_nothing(connected, batch, broker_kind):
    from confluent_kafka import Consumer

    from sparkrelay.devkafka import DevKafka

    with DevKafka(heap_mb=384, **(broker_kind or {})) as broker:
        client = connected(broker.bootstrap_servers)
        Admin(client).create_topics({"t": TopicSpec(1)})
        transactions, tp = TransactionCoordinator(client, timeout=LONG), TopicPartition("t", 0)
        identity = open_one(transactions, "tx")
        write(client, tp, batch(["before"], identity), identity)
        broker.kill()
        broker.start()
        producer = Producer(client)
        producer.begin(identity)
        for sequence in range(1, 9):
            producer.send(tp, batch([f"after {sequence}"], identity, sequence=sequence), transactional_id="tx")
        producer.flush(LONG)
        broker.kill()
        broker.start()
        following = transactions.commit({identity: {tp: 9}}, "g")["tx"]
        assert following == replace(identity, epoch=identity.epoch + 1)
        assert Admin(client, timeout=LONG).committed_offsets("g", [tp]) == {tp: 9}
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "r", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["t"])
        values = []
        while len(values) < 9:
            values += [m.value() for m in consumer.consume(10, 1) if m.error() is None]
        consumer.close()
    assert values == [b"before", *(f"after {n}".encode() for n in range(1, 9))]
