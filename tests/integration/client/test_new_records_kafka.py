"""Waiting for new records on a real broker, which holds the request back."""

import threading

import pytest

from sparkrelay.client.admin import LATEST, Admin
from sparkrelay.client.new_records import News
from sparkrelay.client.produce import Producer
from sparkrelay.errors import WakeupException
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration
#: Longer than any test: who waits so long was not woken.
LONG = 300.0


def never():
    return False


@pytest.fixture
def at(admin, make_topic):
    """The partition of a topic that the client knows."""
    partition = TopicPartition(make_topic("new-records"), 0)
    # Until its leader has taken it up, an answer is an error, which ends a wait.
    admin.list_offsets({partition: LATEST})
    return partition


def held_back(admin, positions, seconds):
    """Have brokers hold a request back for some seconds, and return before they answer."""
    admin.wakeup()
    ends = iter([False, True])
    assert not admin.await_records(positions, timeout=seconds, over=lambda: next(ends))


@pytest.fixture
def meanwhile():
    """`meanwhile(do)` runs ``do`` on another thread, in a moment."""
    started = []

    def start(do):
        started.append(threading.Timer(0.3, do))
        started[-1].start()

    yield start
    for timer in started:
        timer.join()


def test_what_is_there_already_ends_the_wait(admin, at, produce):
    produce(at.topic, [{"value": "a"}, {"value": "b"}])
    assert admin.await_records({at: 1}, timeout=LONG, over=never)
    assert not admin.await_records({at: 2}, timeout=0.05, over=never)


def test_what_comes_ends_the_wait_of_whoever_held_it_back(admin, at, produce, meanwhile):
    meanwhile(lambda: produce(at.topic, [{"value": "a"}]))
    assert admin.await_records({at: 0}, timeout=LONG, over=never)
    assert not admin.await_records({at: 1}, timeout=0.05, over=never)


def test_what_has_come_is_named_with_its_end(admin, make_topic, produce):
    topic = make_topic("new-records", partitions=3)
    here = [TopicPartition(topic, number) for number in range(3)]
    admin.list_offsets(dict.fromkeys(here, LATEST))
    for number, count in ((0, 2), (2, 1)):
        produce(topic, [{"value": "a", "partition": number}] * count)
    positions = dict.fromkeys(here, 0)
    assert admin.await_records(positions, timeout=LONG, over=never).ends == {here[0]: 2, here[2]: 1}
    positions |= {here[0]: 2, here[2]: 1}
    produce(topic, [{"value": "b", "partition": 1}])
    assert admin.await_records(positions, timeout=LONG, over=never).ends == {here[1]: 1}


def test_a_request_names_what_has_changed_alone(client, make_topic, produce, monkeypatch):
    topic = make_topic("new-records", partitions=3)
    here = [TopicPartition(topic, number) for number in range(3)]
    admin = Admin(client, timeout=30)
    admin.list_offsets(dict.fromkeys(here, LATEST))
    asked, send = [], client.send

    def sent(request, **more):
        asked.append({part.partition: part.fetch_offset for one in request.topics for part in one.partitions})
        return send(request, **more)

    monkeypatch.setattr(client, "send", sent)
    positions = dict.fromkeys(here, 0)
    for at, end in ((here[0], 1), (here[2], 1), (here[0], 2)):
        produce(topic, [{"value": "a", "partition": at.partition}])
        assert admin.await_records(positions, timeout=LONG, over=never).ends == {at: end}
        positions[at] = end
    assert asked == [{0: 0, 1: 0, 2: 0}, {0: 1}, {2: 1}]


def test_a_wait_in_vain_keeps_the_session(client, at, produce, monkeypatch):
    epochs, send = [], client.send
    monkeypatch.setattr(
        client, "send", lambda request, **more: epochs.append(request.session_epoch) or send(request, **more)
    )
    admin = Admin(client, timeout=30)
    for _ in range(3):
        held_back(admin, {at: 0}, 0.02)
        assert not admin.await_records({at: 0}, timeout=LONG, over=never), "the answer to that is empty"
    produce(at.topic, [{"value": "a"}])
    assert admin.await_records({at: 0}, timeout=LONG, over=never) == News({at: 1})
    assert epochs == [0, 1, 2, 3]


def test_a_session_that_the_broker_has_ended_begins_again(client, at, produce):
    admin = Admin(client, timeout=30)
    held_back(admin, {at: 0}, 0.02)
    assert not admin.await_records({at: 0}, timeout=LONG, over=never), "the answer to that is empty"
    (watch,) = admin._new_records._watches.values()
    watch.session.session_id += 1
    produce(at.topic, [{"value": "a"}])
    assert admin.await_records({at: 0}, timeout=LONG, over=never).trouble
    assert admin.await_records({at: 0}, timeout=LONG, over=never).ends == {at: 1}


def test_an_open_transaction_is_nothing_to_read(connected, admin, transactions, at, batch, wait_until):
    identity = transactions.init([at.topic], transaction_timeout_ms=60_000)[at.topic]
    producer = Producer(connected())
    producer.begin(identity)
    producer.send(at, batch(["a"], identity), transactional_id=identity.transactional_id)
    producer.flush(30)
    assert not admin.await_records({at: 0}, timeout=0.2, over=never)
    position = TopicPartition(at.topic, 0)
    transactions.commit({identity: {position: 0}}, at.topic)
    # The answer to the request before may come first, empty.
    wait_until(lambda: admin.await_records({at: 0}, timeout=LONG, over=never), "its end is nothing to read")


def test_a_wakeup_ends_it_only_if_it_is_over(admin, at, meanwhile):
    looks = []

    def over():
        looks.append(1)
        if len(looks) == 2:
            meanwhile(admin.wakeup)
        return len(looks) > 2

    meanwhile(admin.wakeup)
    assert not admin.await_records({at: 0}, timeout=LONG, over=over)
    assert len(looks) == 3


def test_an_interrupt_breaks_it_off(admin, at, meanwhile):
    meanwhile(admin.interrupt)
    with pytest.raises(WakeupException):
        admin.await_records({at: 0}, timeout=LONG, over=never)


@pytest.mark.parametrize("offset", [9, -5], ids=["beyond its end", "of no log"])
def test_trouble_ends_the_wait(admin, at, offset):
    assert admin.await_records({at: offset}, timeout=LONG, over=never).trouble


def test_a_partition_that_nobody_leads_is_looked_at_soon(admin):
    assert admin.await_records({TopicPartition("nowhere", 0): 0}, timeout=LONG, over=never).trouble


def test_a_request_that_is_held_back_is_waited_for_again(client, at, produce, meanwhile, monkeypatch):
    sent, send = [], client.send
    monkeypatch.setattr(client, "send", lambda *args, **more: sent.append(args) or send(*args, **more))
    admin = Admin(client, timeout=30)
    held_back(admin, {at: 0}, LONG)
    meanwhile(lambda: produce(at.topic, [{"value": "a"}]))
    assert admin.await_records({at: 0}, timeout=LONG, over=never)
    assert len(sent) == 1


def test_a_partition_that_the_request_held_back_does_not_name_is_looked_at_soon(make_topic, admin):
    topic = make_topic("new-records", partitions=2)
    one, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    admin.list_offsets({one: LATEST, other: LATEST})
    held_back(admin, {one: 0}, LONG)
    assert admin.await_records({one: 0, other: 0}, timeout=LONG, over=never).trouble


def test_an_answer_without_records_ends_the_wait(admin, at):
    """The former wait was shorter, and its request is still with the broker."""
    held_back(admin, {at: 0}, 0.5)
    assert not admin.await_records({at: 0}, timeout=LONG, over=never)
