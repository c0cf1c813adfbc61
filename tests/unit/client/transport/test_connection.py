import contextlib
import socket
import struct
import sys

import pytest
from hypothesis import given, settings, strategies as st

from sparkrelay.client.config import ClientConfig
from sparkrelay.client.transport import connection, frames
from sparkrelay.client.transport.frames import PlainTransport
from sparkrelay.client.transport.loop import Loop


class Collector:
    """Stands where a connection stands: takes frames, and notes the end."""

    def __init__(self):
        self.frames = []
        self.lost = None

    def data_received(self, frame):
        self.frames.append(bytes(frame))

    def connection_lost(self, error):
        self.lost = error or True

    _sensors = None


@pytest.fixture
def pair():
    net = Loop("test")
    made = []

    def make(limit=1 << 20):
        left, right = socket.socketpair()
        left.setblocking(False)
        transport = PlainTransport(net, left, host="test", max_frame_bytes=limit)
        collector = Collector()
        transport.set_protocol(collector)
        transport.resume_reading()
        made.extend([left, right])
        return net, transport, right, collector

    yield make
    net.close()
    for sock in made:
        sock.close()


def framed(payload):
    return struct.pack(">i", len(payload)) + payload


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_frames_arrive_whole_however_the_bytes_are_cut(data):
    sizes = data.draw(st.lists(st.integers(0, 300), min_size=1, max_size=12))
    payloads = [bytes([i % 251]) * size for i, size in enumerate(sizes)]
    stream = b"".join(map(framed, payloads))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    net = Loop("test")
    left, right = socket.socketpair()
    left.setblocking(False)
    transport = PlainTransport(net, left, host="test", max_frame_bytes=1 << 20)
    # A scratch buffer smaller than most frames makes both ways of receiving take turns.
    net.scratch = memoryview(bytearray(data.draw(st.sampled_from([8, 64, 1024]))))
    collector = Collector()
    transport.set_protocol(collector)
    transport.resume_reading()
    try:
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            right.sendall(stream[start:end])
            net.turn(0)
        for _ in range(10 * len(payloads) + 100):
            net.turn(0)
            if len(collector.frames) == len(payloads):
                break
        assert collector.frames == payloads
    finally:
        net.close()
        left.close()
        right.close()


def test_a_large_frame_is_received_in_a_buffer_of_its_size(pair):
    net, _, right, collector = pair(1 << 26)
    payload = bytes(range(256)) * 40_000
    right.setblocking(False)
    left_to_send = memoryview(framed(payload) + framed(b"next"))
    while left_to_send or len(collector.frames) < 2:
        with contextlib.suppress(BlockingIOError):
            left_to_send = left_to_send[right.send(left_to_send) :]
        net.turn(0)
    assert collector.frames == [payload, b"next"]


def test_a_frame_above_the_limit_ends_the_connection_and_names_the_setting(pair):
    net, transport, right, collector = pair(100)
    right.sendall(struct.pack(">i", 101))
    while collector.lost is None:
        net.turn(1)
    assert "receive.message.max.bytes=100" in str(collector.lost)
    assert transport.is_closing()


def test_an_answer_that_nobody_expected_to_be_like_that_ends_its_connection_alone(pair):
    # The connection would go on with an answer short: each of the next would be taken for the one before it.
    net, transport, right, collector = pair()
    neighbour, other, received = pair()[1:]
    problem = AttributeError("no such field")

    def stumble(frame):
        raise problem

    collector.data_received = stumble
    right.sendall(framed(b"x") + framed(b"y"))
    while collector.lost is None:
        assert not transport.is_closing()
        net.turn(1)
    assert "no such field" in str(collector.lost)
    assert collector.lost.__cause__ is problem
    assert transport.is_closing()
    other.sendall(framed(b"z"))
    while not received.frames:
        net.turn(1)
    assert not neighbour.is_closing()


def test_the_end_of_the_stream_is_noticed(pair):
    net, _, right, collector = pair()
    right.close()
    while collector.lost is None:
        net.turn(1)
    assert "closed the connection" in str(collector.lost)


def test_lists_of_buffers_go_out_in_order_and_in_full(pair, monkeypatch):
    monkeypatch.setattr(frames, "_GATHERED", 3)
    net, transport, right, _ = pair()
    buffers = [bytes([i]) * (1 + i * 7919) for i in range(40)]
    transport.write(list(buffers))
    transport.write(b"end")
    expected = b"".join(buffers) + b"end"
    right.setblocking(False)
    received = bytearray()
    while len(received) < len(expected):
        net.turn(0)
        with contextlib.suppress(BlockingIOError):
            received += right.recv(1 << 16)
    assert received == expected


def test_an_error_while_sending_is_not_raised_in_the_callers_stack(pair):
    net, transport, right, collector = pair()
    right.close()
    transport.write(b"x")
    transport.write(b"y")
    while collector.lost is None:
        net.turn(1)
    with pytest.raises(RuntimeError, match="closed for writes"):
        transport.write(b"z")


def test_memory_of_large_frames_is_used_again_only_when_nobody_looks_at_it():
    buffers = frames._FrameBuffers()
    size = 2 << 20
    first = buffers.take(size)
    first[:5] = b"first"
    records = first[1:4]  # as the records of a response are
    del first
    second = buffers.take(size)
    second[:5] = b"other"
    assert bytes(records) == b"irs"
    address = address_of(second)
    del second
    assert address_of(buffers.take(size)) == address
    del records
    third, fourth, fifth = (buffers.take(size) for _ in range(3))
    assert len({address_of(third), address_of(fourth), address_of(fifth)}) == 3
    assert len(buffers._kept) == 2
    assert len(buffers.take(100)) == 100


def address_of(view):
    import numpy as np

    return np.frombuffer(view, np.uint8).ctypes.data


def test_a_host_that_has_vanished_is_noticed_by_the_sockets_themselves():
    """An answer to JoinGroup may rightly take minutes; the defaults of systems are hours."""
    options = connection.net_settings(ClientConfig.from_dict({"bootstrap.servers": "h:1"}))["socket_options"]
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        for option in options:
            sock.setsockopt(*option)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if sys.platform == "linux":
            silence = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            silence += sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) * sock.getsockopt(
                socket.IPPROTO_TCP, socket.TCP_KEEPCNT
            )
            assert silence <= 30
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 30_000
