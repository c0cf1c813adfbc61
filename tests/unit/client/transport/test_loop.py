"""The loop's own timers, readers and wakeups; kafka.net's tasks still run on it."""

import gc
import socket
import threading
import time
import weakref

import pytest
from tests.waiting import AVOIDED, wait_until, within

from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.messages import HeartbeatRequest
from sparkrelay.client.transport.loop import Loop


@pytest.fixture
def loop():
    loop = Loop("test")
    yield loop
    loop.close()


@pytest.fixture
def turn_until(loop):
    """`turn_until(condition)` has the loop turn until the condition holds."""
    return lambda condition: wait_until(condition, "the condition did not come true", between=lambda: loop.turn(1))


def test_a_wakeup_ends_the_turn_that_waits_and_is_used_up_by_it(loop):
    waker = threading.Timer(0.05, loop.wakeup)
    waker.start()
    with within():
        loop.turn(AVOIDED)
    waker.join()
    loop.turn(0)  # the byte in the pipe, if it was needed
    began = time.monotonic()
    loop.turn(0.05)
    assert time.monotonic() - began >= 0.04


def test_a_wakeup_before_a_turn_ends_it_at_once(loop):
    loop.wakeup()
    with within():
        loop.turn(AVOIDED)


def test_no_wakeup_is_lost_however_the_threads_meet(loop):
    handled, sent, total = [], [], 3000

    def send():
        for number in range(total):
            sent.append(number)
            loop.wakeup()

    sender = threading.Thread(target=send)
    sender.start()
    with within():
        while len(handled) < total:
            loop.turn(AVOIDED)
            handled += sent[len(handled) :]
    sender.join()


def test_timers_come_in_their_order_and_cancelled_ones_do_not(loop, turn_until):
    came, now = [], time.monotonic()
    timers = [loop.timer(now + n / 1000, lambda n=n: came.append(n)) for n in range(20)]
    for timer in timers[1::2]:
        loop.cancel(timer)
        loop.cancel(timer)  # harmless
    turn_until(lambda: len(came) >= 10)
    assert came == list(range(0, 20, 2))


def test_cancelled_timers_neither_pile_up_nor_keep_what_they_were_for(loop):
    class Large:
        pass

    large = Large()
    gone = weakref.ref(large)
    timer = loop.timer(time.monotonic() + 3600, lambda large=large: large)
    loop.cancel(timer)
    del large, timer
    gc.collect()
    assert gone() is None
    kept = [loop.timer(time.monotonic() + 3600, lambda: None) for _ in range(10)]
    for _ in range(10_000):
        loop.cancel(loop.timer(time.monotonic() + 3600, lambda: None))
    assert len(loop._scheduled) < 1000
    assert sum(task.scheduled_at is not None for _, task in loop._scheduled) == len(kept)


def test_a_timer_of_kafka_net_can_be_moved(loop):
    came = []
    task = loop.call_later(3600, lambda: came.append(1))
    loop.reschedule(time.monotonic(), task)
    loop.turn(1)
    assert came == [1]


def test_a_reader_that_fails_does_not_end_the_others(loop, turn_until, caplog):
    received, pairs = [], [socket.socketpair() for _ in range(2)]

    def fail():
        pairs[0][0].recv(10)
        raise RuntimeError("cannot read")

    loop.receive(pairs[0][0], fail)
    loop.receive(pairs[1][0], lambda: received.append(pairs[1][0].recv(10)))
    for _, other in pairs:
        other.send(b"x")
    turn_until(lambda: received and "cannot read" in caplog.text)
    assert received == [b"x"]
    for pair in pairs:
        for sock in pair:
            sock.close()


def test_clients_share_a_loop_and_close_alone(loop, turn_until, tiny_broker):
    broker = tiny_broker(lambda api, *_: b"\0" * 4 + b"\0\0" + b"\0" if api == 12 else None)
    config = ClientConfig(bootstrap_servers=f"127.0.0.1:{broker.port}")
    clients = [KafkaClient(config, loop=loop) for _ in range(3)]
    waiting = [client.request_metadata(()) for client in clients]
    turn_until(lambda: all(response.done for response in waiting))
    assert all(response.error is None for response in waiting)
    clients[0].close()
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id=None)
    response = clients[1].send(beat, node=1)
    turn_until(lambda: response.done)
    for client in clients[1:]:
        client.close()
    # The loop goes on: its owner closes it.
    came = []
    loop.timer(time.monotonic(), lambda: came.append(1))
    loop.turn(1)
    assert came == [1]


def test_closing_a_client_that_is_connecting_leaves_no_socket_registered(loop):
    # A listener that never accepts more than its backlog.
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(0)
    client = KafkaClient(ClientConfig(bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}"), loop=loop)
    response = client.request_metadata(())
    for _ in range(5):
        loop.turn(0.01)
    client.close()
    assert response.done
    loop.turn(0)
    assert list(loop._selector.get_map()) == [loop._wakeup_r.fileno()]
    server.close()
