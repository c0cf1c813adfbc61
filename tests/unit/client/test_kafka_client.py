import socket
import struct
import threading
import time

import pytest
from kafka.protocol.metadata import MetadataResponse
from tests.ports import own_port
from tests.waiting import AVOIDED, LONG, within

from sparkrelay.client.messages import EndTxnRequest, FetchRequest, MetadataRequest, ProduceRequest
from sparkrelay.errors import (
    DisconnectException,
    KafkaException,
    TimeoutException,
    UnsupportedVersionException,
    WakeupException,
)


def metadata_request():
    return MetadataRequest(topics=[])


def test_bootstrap_learns_the_brokers(tiny_broker, make_client):
    client = make_client(tiny_broker().port)
    client.bootstrap(LONG)
    assert list(client.metadata.brokers) == [1]


def test_bootstrap_names_the_servers_and_the_last_error(make_client):
    port = own_port()
    with pytest.raises(
        TimeoutException, match=rf"bootstrap.servers=127.0.0.1:{port} within 3 s; last error: .*REFUSED"
    ):
        make_client(port).bootstrap(3)


def test_bootstrap_gives_up_early_where_every_address_refuses(make_client):
    with pytest.raises(TimeoutException, match=r"within 0.2 s; last error: .*REFUSED"):
        make_client(own_port(), own_port()).bootstrap(600, refused_timeout=0.2)


def test_bootstrap_waits_on_while_one_address_is_silent(make_client):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = make_client(own_port(), silent.getsockname()[1])
        with pytest.raises(TimeoutException, match="within 0.6 s"):
            client.bootstrap(0.6, refused_timeout=0.1)


def test_bootstrap_waits_for_a_broker_that_does_not_answer_yet(tiny_broker, make_client):
    answers = iter(["close", "close", None])
    broker = tiny_broker(lambda api, *_: next(answers, None) if api == 3 else None)
    client = make_client(broker.port, reconnect_backoff_ms=1)
    client.bootstrap(LONG)
    assert client.metadata.brokers


def test_requests_without_bootstrap_go_to_the_bootstrap_servers(tiny_broker, make_client):
    client = make_client(tiny_broker().port)
    response = client.send(metadata_request())
    client.wait([response], LONG)
    assert response.node < 0
    assert response.result().cluster_id == "tiny"


def test_callbacks_run_in_poll_and_not_in_send(make_client):
    client = make_client(1)
    response = client.send(metadata_request(), node=99)
    seen = []
    response.add_done_callback(lambda done: seen.append(done.error))
    assert not response.done
    client.wait([response], LONG)
    assert isinstance(seen[0], DisconnectException)
    assert "broker 99 is not in the cluster's metadata" in str(seen[0])
    late = []
    response.add_done_callback(late.append)
    assert late == [response]


def test_a_failing_callback_stops_nobody(tiny_broker, make_client, caplog):
    client = make_client(tiny_broker().port)
    response = client.send(metadata_request())
    seen = []
    response.add_done_callback(lambda _: 1 / 0)
    response.add_done_callback(seen.append)
    client.wait([response], LONG)
    assert seen == [response]
    assert "a callback of a Kafka response failed" in caplog.text


def test_a_lost_connection_fails_what_was_in_flight_and_the_next_request_connects_again(tiny_broker, make_client):
    broker = tiny_broker()
    client = make_client(broker.port, reconnect_backoff_ms=0)
    client.bootstrap(LONG)
    waiting = client.send(ProduceRequest(acks=-1, timeout_ms=1, topic_data=[], transactional_id=None), node=1)
    while not broker.requests or broker.requests[-1][0] != 0:
        client.poll(0.01)
    broker.drop_connections()
    client.wait([waiting], LONG)
    assert isinstance(waiting.error, DisconnectException)
    assert waiting.error.retriable
    again = client.send(metadata_request(), node=1)
    client.wait([again], LONG)
    assert again.error is None


def test_during_the_reconnect_backoff_requests_fail_with_its_cause(tiny_broker, make_client):
    broker = tiny_broker(lambda api, *_: "close")
    client = make_client(broker.port, reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000)
    first = client.send(metadata_request(), node=-1)
    client.wait([first], LONG)
    second = client.send(metadata_request(), node=-1)
    client.wait([second], LONG)
    assert isinstance(second.error, DisconnectException)
    assert f"127.0.0.1:{broker.port}" in str(second.error)
    assert broker.connections == 1


def test_a_request_that_is_not_answered_times_out_and_so_does_its_connection(tiny_broker, make_client):
    client = make_client(tiny_broker().port)
    client.bootstrap(LONG)
    # The time counts from the beginning: on a slow machine it would be over before there is a connection.
    client.wait([client.send(metadata_request(), node=1)], LONG)
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[], transactional_id=None)
    response = client.send(request, node=1, timeout=0.05)
    client.wait([response], LONG)
    assert isinstance(response.error, TimeoutException)
    assert "ProduceRequest" in str(response.error)
    assert not client.is_connected(1)


def test_waiting_has_a_bound_of_its_own(tiny_broker, make_client):
    client = make_client(tiny_broker().port)
    client.bootstrap(LONG)
    response = client.send(ProduceRequest(acks=-1, timeout_ms=1, topic_data=[], transactional_id=None), node=1)
    with pytest.raises(TimeoutException, match="1 of 1 requests unanswered after 0.05 s"):
        client.wait([response], 0.05)
    assert not response.done


def test_more_requests_than_five_may_be_in_flight(tiny_broker, make_client):
    client = make_client(tiny_broker().port)
    responses = [client.send(metadata_request()) for _ in range(50)]
    client.wait(responses, LONG)
    assert all(r.error is None for r in responses)


def test_lanes_are_connections_of_their_own(tiny_broker, make_client):
    broker = tiny_broker(lambda api, *_: None)
    client = make_client(broker.port)
    client.bootstrap(LONG)
    stuck = client.send(
        ProduceRequest(acks=-1, timeout_ms=1, topic_data=[], transactional_id=None), node=1, lane="slow"
    )
    free = client.send(metadata_request(), node=1, lane="fast")
    client.wait([free], LONG)
    while not client.is_connected(1, "slow"):
        client.poll(0.01)
    assert not stuck.done
    assert client.is_connected(1, "fast")
    assert client.in_flight(1, "slow") == 1


def test_a_version_the_broker_lacks_is_refused_before_sending(tiny_broker, make_client):
    client = make_client(tiny_broker().port)
    client.bootstrap(LONG)
    request = EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True, min_version=5)
    response = client.send(request, node=1)
    client.wait([response], LONG)
    assert isinstance(response.error, UnsupportedVersionException)
    assert not client.supports(EndTxnRequest, 5)
    assert client.supports(FetchRequest, 12)
    assert not client.supports(FetchRequest, 13)
    assert not client.supports(FetchRequest, 99)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 100, id="another protocol"),
        pytest.param(struct.pack(">i", 2**31 - 1), id="huge frame"),
        pytest.param(struct.pack(">i", -5), id="negative frame"),
        pytest.param(struct.pack(">ii", 4, 4242), id="wrong correlation id"),
        pytest.param(struct.pack(">ii", 6, 2) + b"\0\0", id="truncated body"),
        pytest.param(struct.pack(">ih", 2, 0), id="no correlation id"),
    ],
)
def test_garbage_ends_the_connection_with_a_named_error(tiny_broker, make_client, raw):
    broker = tiny_broker(lambda api, *_: ("raw", raw) if api == 0 else None)
    client = make_client(broker.port)
    client.bootstrap(LONG)
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[], transactional_id=None)
    response = client.send(request, node=1, lane="garbage")
    client.wait([response], LONG)
    assert isinstance(response.error, DisconnectException)
    assert not client.is_connected(1, "garbage")


def test_an_answer_that_cannot_be_taken_fails_its_request_with_the_cause(tiny_broker, make_client, monkeypatch):
    client = make_client(tiny_broker().port, reconnect_backoff_ms=0)
    client.bootstrap(LONG)
    problem = TypeError("an answer like no other")

    def stumble(*_):
        raise problem

    with monkeypatch.context() as patch:
        patch.setattr(MetadataResponse, "decode", stumble)
        response = client.send(metadata_request(), node=1)
        client.wait([response], LONG)
    assert "an answer like no other" in str(response.error)
    assert response.error.retriable
    assert response.error.__cause__.__cause__ is problem
    again = client.send(metadata_request(), node=1)
    client.wait([again], LONG)
    assert again.error is None


def test_another_thread_may_wake_the_poll_and_run_things_on_it(make_client):
    client = make_client(1)
    ran_on = []
    entered = threading.Event()

    def other():
        entered.wait(LONG)
        client.call_soon_threadsafe(lambda: ran_on.append(threading.current_thread()))
        client.wakeup()

    thread = threading.Thread(target=other)
    thread.start()
    entered.set()
    with within():
        while not ran_on:
            client.poll(AVOIDED)
    assert ran_on == [threading.current_thread()]
    thread.join()


def test_an_interrupted_client_waits_for_nothing_any_more(make_client):
    client = make_client(1)
    polling = threading.Event()

    def other():
        polling.wait(LONG)
        client.interrupt()

    thread = threading.Thread(target=other)
    client.call_soon_threadsafe(polling.set)
    thread.start()
    with pytest.raises(WakeupException):
        client.bootstrap(600)
    with pytest.raises(WakeupException):
        client.poll(600)
    thread.join()


def test_a_second_polling_thread_is_refused(make_client):
    client = make_client(1)
    polling, refused = threading.Event(), []

    def other():
        polling.wait(LONG)
        while not refused:
            try:
                client.poll(0)
            except RuntimeError as error:
                refused.append(error)
        client.wakeup()

    thread = threading.Thread(target=other)
    client.call_soon_threadsafe(polling.set)
    thread.start()
    while not refused:
        try:
            client.poll(LONG)
        except RuntimeError:
            refused.append("the other thread was first")
    thread.join()
    assert refused


def test_closing_fails_what_is_outstanding_and_refuses_more(tiny_broker, make_client):
    client = make_client(tiny_broker().port)
    client.bootstrap(LONG)
    response = client.send(ProduceRequest(acks=-1, timeout_ms=1, topic_data=[], transactional_id=None), node=1)
    client.poll(0)
    client.close()
    client.close()
    assert isinstance(response.error, DisconnectException)
    with pytest.raises(DisconnectException, match="closed"):
        client.send(metadata_request())
    with pytest.raises(DisconnectException, match="closed"):
        client.poll(0)
    with pytest.raises(DisconnectException, match="closed"):
        client.call_soon_threadsafe(print)


def test_brokers_that_left_the_cluster_lose_their_connections(tiny_broker, make_client):
    broker = tiny_broker()
    client = make_client(broker.port)
    client.bootstrap(LONG)
    client.metadata._brokers[7] = client.metadata._brokers[1]
    client.wait([client.send(metadata_request(), node=7)], LONG)
    assert client.is_connected(7)
    client.wait([client.request_metadata(())], LONG)
    client.poll(0)
    assert not client.is_connected(7)
    assert client.is_connected(1) or client.least_loaded_node() == 1


def test_dropping_a_connection_fails_what_waits_there_and_nothing_else(tiny_broker, make_client):
    client = make_client(tiny_broker().port, reconnect_backoff_ms=1)
    client.bootstrap(LONG)
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[], transactional_id=None)
    silent, other = (client.send(request, node=1, lane=lane) for lane in ("group", "fetch"))
    while not (client.is_connected(1, "group") and client.is_connected(1, "fetch")):
        client.poll(0.1)
    client.drop(1, "group", "it did not answer in time")
    client.drop(1, "join", "there is no such connection")
    client.wait([silent], LONG)
    assert isinstance(silent.error, DisconnectException)
    assert "it did not answer in time" in str(silent.error)
    assert not other.done
    assert client.is_connected(1, "fetch")
    client.sleep(0.1)  # longer than the backoff after a lost connection
    again = client.send(metadata_request(), node=1, lane="group")
    client.wait([again], LONG)
    assert again.error is None


def test_a_throttled_connection_holds_requests_back_instead_of_failing_them(tiny_broker, make_client):
    from kafka.protocol.metadata import MetadataResponse

    throttled, arrived = [], []

    def answer(api, version, *_):
        if api != 3 or throttled:
            arrived.append(time.monotonic())
            return None
        throttled.append(time.monotonic())
        message = MetadataResponse(throttle_time_ms=150, brokers=[], controller_id=1, topics=[], version=version)
        return b"\0" + bytes(message.encode(version=version))

    broker = tiny_broker(answer)
    client = make_client(broker.port)
    client.wait([client.send(metadata_request(), node=-1)], LONG)
    assert throttled
    arrived.clear()
    held = [client.send(metadata_request(), node=-1) for _ in range(3)]
    client.wait(held, LONG)
    assert all(response.error is None for response in held)
    assert len(arrived) == 3
    # The broker's own time, which is no less however slowly the client is scheduled.
    assert min(arrived) - throttled[0] >= 0.15


def test_a_request_that_cannot_be_written_fails_alone(tiny_broker, make_client):
    broker = tiny_broker()
    client = make_client(broker.port)
    bad = MetadataRequest.MetadataRequestTopic(name="\udc80")

    def ask_both():
        wrong, right = client.send(MetadataRequest(topics=[bad])), client.send(metadata_request())
        client.wait([wrong, right], LONG)
        assert isinstance(wrong.error, KafkaException)
        assert not wrong.error.retriable
        assert "MetadataRequest cannot be encoded" in str(wrong.error)
        assert right.result().cluster_id == "tiny"

    ask_both()  # while the connection is being set up
    client.bootstrap(LONG)
    ask_both()
    ask_both()
