"""The network thread with managers of the test's own: no broker is needed, for nothing is sent."""

import math
import threading
import time

import pytest
from tests.waiting import LONG, wait_until

from sparkrelay.client.messages import HeartbeatRequest
from sparkrelay.consumer import Consumer
from sparkrelay.consumer.base.call import Call
from sparkrelay.consumer.base.config import ConsumerConfig
from sparkrelay.consumer.base.events import Polled, Rejoin
from sparkrelay.consumer.base.mailbox import Mailbox, Wait
from sparkrelay.consumer.base.requests import PollResult, Unsent
from sparkrelay.consumer.network.network_thread import NetworkThread, attach
from sparkrelay.errors import ConfigException, DisconnectException, KafkaException

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


class Core:
    """Notes what it gets, and asks to be polled again when the test says."""

    def __init__(self):
        self.events, self.polls, self.wait, self.problem = [], 0, math.inf, None
        self.managers = (self,)
        self.now = 0.0
        self.turned = threading.Event()

    def process(self, event, now):
        self.events.append(event)

    def poll(self, now):
        self.polls += 1
        if self.problem is not None:
            raise self.problem
        self.turned.set()
        return PollResult(wait=self.wait)

    def last_requests(self):
        return ()

    def await_turn(self):
        assert self.turned.wait(LONG)
        self.turned.clear()


@pytest.fixture
def network():
    with NetworkThread() as network:
        yield network


@pytest.fixture
def join(network):
    """`join()` attaches a consumer and returns its core and its handle."""

    def join(core=None):
        core = core or Core()
        handle = network.attach(ConsumerConfig.from_dict(NOWHERE), Mailbox(), lambda _: core)
        core.await_turn()
        return core, handle

    return join


def threads():
    return {thread for thread in threading.enumerate() if thread.name.startswith("consumer-network")}


def test_only_the_consumer_with_news_is_turned(join):
    (one, handle), (other, _) = join(), join()
    polls = other.polls
    for number in range(20):
        handle.submit(Rejoin(str(number)))
        one.await_turn()
    assert [event.reason for event in one.events] == [str(number) for number in range(20)]
    assert other.polls == polls


def test_a_consumer_is_turned_when_it_is_due(join):
    core, handle = join()
    core.wait = 0.01
    handle.wake()
    for _ in range(5):
        core.await_turn()
    core.wait = math.inf


def test_what_the_application_did_before_it_polled_is_taken_before(join):
    """An answer may end in a state that only a poll ends: that poll has been, and nobody would speak of it again."""
    core, handle = join()
    handle.polled_at = time.monotonic()
    handle.submit(Rejoin("x"))
    core.await_turn()
    assert core.events == [Rejoin("x"), Polled(handle.polled_at)]


def test_events_of_many_threads_arrive_each_once(join):
    core, handle = join()

    def send(name):
        for number in range(300):
            handle.submit(Rejoin(f"{name}-{number}"))

    senders = [threading.Thread(target=send, args=(name,)) for name in "abcd"]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    wait_until(lambda: len(core.events) >= 1200, "events are missing")
    for name in "abcd":
        own = [event.reason for event in core.events if event.reason.startswith(name)]
        assert own == [f"{name}-{number}" for number in range(300)]


def test_a_consumer_whose_managers_fail_is_closed_alone(join):
    (bad, bad_handle), (good, good_handle) = join(), join()
    call = Call("waiting", time.monotonic() + 60)
    bad.problem = RuntimeError("wrong turn")
    with pytest.raises(DisconnectException, match="wrong turn"):  # noqa: PT012 - the call, or the next one
        bad_handle.submit(Rejoin("x"), call)
        call.wait(LONG)
        call.result()
    with pytest.raises(DisconnectException, match="wrong turn") as caught:
        bad_handle.submit(Rejoin("y"))
    assert caught.value.__cause__ is bad.problem
    assert not caught.value.retriable
    assert call.wait(LONG)
    assert not call.error.retriable
    assert call.wait(LONG)
    assert isinstance(call.error, DisconnectException)
    good.turned.clear()
    good_handle.submit(Rejoin("z"))
    good.await_turn()
    assert not good_handle.dead


def test_a_thread_that_dies_notifies_every_consumer_why(network, join):
    handles = [join()[1] for _ in range(3)]
    calls = [Call("waiting", time.monotonic() + 60) for _ in handles]
    for handle, call in zip(handles, calls, strict=True):
        handle.submit(Rejoin("x"), call)
    core, handle = join()
    core.problem = SystemExit("the roof fell in")
    handle.wake()
    for call in calls:
        assert call.wait(LONG)
        assert "the roof fell in" in str(call.error)
    for each in handles:
        with pytest.raises(DisconnectException, match="roof fell in"):
            each.submit(Rejoin("y"))
    with pytest.raises(DisconnectException, match="roof fell in"):
        join()


def test_a_consumer_that_cannot_start_leaves_the_others(network, join):
    core, handle = join()

    def make(_):
        raise ConfigException("no such thing")

    with pytest.raises(ConfigException, match="no such thing"):
        network.attach(ConsumerConfig.from_dict(NOWHERE), Mailbox(), make)
    core.turned.clear()
    handle.submit(Rejoin("x"))
    core.await_turn()


def test_closing_one_leaves_the_others(join):
    (core, handle), (_, other) = join(), join()
    other.stop(30)
    assert other.dead
    with pytest.raises(DisconnectException, match="the consumer is closed"):
        other.submit(Rejoin("x"))
    core.turned.clear()
    handle.submit(Rejoin("y"))
    core.await_turn()


def test_news_of_one_that_is_closed_do_no_harm(network, join):
    # It was ended a second time with its thread, which ended the thread before it had notified the others.
    (_, handle), (_, other) = join(), join()
    handle.stop(LONG)
    handle.core.last_requests = lambda: 1 / 0
    call = Call("waiting", time.monotonic() + 60)
    other.submit(Rejoin("x"), call)
    handle.listed = False
    handle.wake()
    network._stopping = True
    handle.listed = False
    handle.wake()
    assert call.wait(LONG)
    assert isinstance(call.error, DisconnectException)
    network._thread.join(LONG)
    assert not network._thread.is_alive()


def test_a_consumer_that_cannot_leave_does_not_keep_the_others(network, join):
    (core, handle), (_, other) = join(), join()
    core.last_requests = lambda: 1 / 0
    handle.stop(LONG)
    assert handle.dead
    assert not other.dead


def test_closing_the_thread_ends_its_consumers_and_refuses_new_ones(network, join, caplog):
    _, handle = join()
    network.close()
    with pytest.raises(DisconnectException, match="network thread is closed"):
        handle.submit(Rejoin("x"))
    with pytest.raises(DisconnectException, match="network thread is closed"):
        join()
    assert "closed before 1 of its consumers" in caplog.text
    handle.stop(5)
    network.close()


def test_a_thread_that_nobody_used_is_never_started(network):
    network.close()
    with pytest.raises(DisconnectException, match="closed"):
        attach(network, ConsumerConfig.from_dict(NOWHERE), Mailbox(), lambda _: Core())


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"security.protocol": "SSL", "ssl.ca.location": "/nowhere/ca.pem"}, r"ssl\.ca\.location=/nowhere/ca\.pem"),
        (
            {"security.protocol": "SSL", "ssl.certificate.location": "/nowhere"},
            r"ssl\.certificate\.location=/nowhere,",
        ),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "NONSENSE"}, r"sasl\.mechanism='NONSENSE'"),
    ],
)
def test_a_failed_start_names_the_setting_and_leaks_nothing(shared, settings, says):
    # KAFKA-19898.
    before, thread = threads(), NetworkThread() if shared else None
    with pytest.raises(ConfigException, match=says):
        Consumer({**NOWHERE, **settings}, network=thread)
    if thread is not None:
        thread.close()
    wait_until(lambda: threads() <= before, "threads are left")


def test_every_call_of_a_consumer_without_its_thread_raises(caplog):
    # KAFKA-18812.
    consumer = Consumer({**NOWHERE, "group.id": "g"})
    consumer.subscribe(["t"])
    consumer._network.core.managers = (Broken(),)
    with pytest.raises(DisconnectException, match="no way on"):  # noqa: PT012 - this call, or the next one
        while True:
            consumer.poll(0.05)
    for call in (
        lambda: consumer.poll(5),
        consumer.assignment,
        consumer.commit,
        lambda: consumer.subscribe(["u"]),
        lambda: consumer.partitions_for("t"),
        consumer.group_metadata,
    ):
        with pytest.raises(DisconnectException, match="no way on"):
            call()
    consumer.close()
    named = "consumer-network-sparkrelay"
    wait_until(lambda: named not in {thread.name for thread in threads()}, "its thread is left")


class Broken:
    def poll(self, now):
        raise RuntimeError("no way on")


def test_a_request_that_cannot_be_made_fails_alone(join):
    core, handle = join()
    reported = []

    class Unsendable:
        def __init__(self):
            self.asked = False

        def poll(self, now):
            if self.asked:
                return PollResult()
            self.asked = True
            return PollResult((Unsent(object(), lambda *outcome: reported.append(outcome), node=object()),))

    core.managers = (Unsendable(), core)
    handle.wake()
    core.await_turn()
    ((message, error, _),) = reported
    assert message is None
    assert isinstance(error, KafkaException)
    assert not error.retriable
    handle.submit(Rejoin("x"))
    core.await_turn()


@pytest.mark.parametrize("stumbles", ["handle", "answered"])
def test_a_consumer_that_cannot_take_an_answer_is_closed_alone(join, stumbles):
    # Whoever asked would count its request as under way for ever, and every call that waits for it would time out.
    problem = ValueError("not what I asked for")

    def stumble(*_):
        raise problem

    class Asks(Core):
        def __init__(self):
            super().__init__()
            self.asked = False

        def poll(self, now):
            result = super().poll(now)
            if self.asked or not self.events:
                return result
            self.asked = True
            return PollResult((Unsent(HeartbeatRequest(), stumble if stumbles == "handle" else lambda *_: None),))

        def answered(self, *_):
            if stumbles == "answered":
                stumble()

    (good, good_handle) = join()
    _, bad_handle = join(Asks())
    call = Call("waiting", time.monotonic() + 600)
    with pytest.raises(DisconnectException, match="not what I asked for"):  # noqa: PT012 - the call, or the next one
        bad_handle.submit(Rejoin("x"), call)
        call.wait(LONG)
        call.result()
    assert bad_handle.dead
    assert call.wait(LONG)
    assert call.error.__cause__ is problem
    with pytest.raises(DisconnectException, match="not what I asked for") as caught:
        bad_handle.submit(Rejoin("y"))
    assert caught.value.__cause__ is problem
    good.turned.clear()
    good_handle.submit(Rejoin("z"))
    good.await_turn()
    assert not good_handle.dead


def test_a_wakeup_that_was_cut_short_does_not_deafen_the_consumer(join):
    # A Ctrl-C between noting that a consumer is in the queue and putting it there.
    core, handle = join()
    core.wait = 0.05
    handle.wake()
    core.await_turn()
    core.turned.clear()
    handle.listed = True
    core.await_turn()
    core.wait = math.inf
    core.turned.clear()
    handle.submit(Rejoin("x"))
    wait_until(lambda: Rejoin("x") in core.events, "the consumer was not notified")
    assert not handle.listed


def test_the_network_thread_cannot_wait_for_itself(join):
    core, handle = join()
    call = Call("committing offsets", time.monotonic() + 60)
    seen = []

    def wait(_):
        try:
            Mailbox().wait_for(Wait(lambda: seen, time.monotonic() + 1))
        except ConfigException as error:
            seen.append(str(error))
        else:
            seen.append("it waited")

    call.when_done(wait)

    class Resolves:
        def poll(self, now):
            call.resolve(None)
            return PollResult()

    core.managers = (Resolves(), core)
    handle.wake()
    core.await_turn()
    assert "the callback argument of commit_async()" in seen[0]
