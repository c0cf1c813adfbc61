"""Channels between the driver and the steps of a resident job: both ends prove themselves, lengths are not believed."""

import contextlib
import os
import socket
import stat
import struct
import tempfile
import threading
from pathlib import Path

import pytest
from tests.waiting import LONG

from sparkrelay.runtime.contract.channel import Channel, ChannelClosed, Listener, connect
from sparkrelay.runtime.contract.socket_folders import LONGEST_PATH

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
PLACES = pytest.mark.parametrize("host", [None, ("127.0.0.1", "127.0.0.1")], ids=["unix", "tcp"])


@contextlib.contextmanager
def both_ends(host, *, step_key=KEY):
    """Yield what each end of a new channel got: a Channel, or the error."""
    listener = Listener(KEY, host)
    ends = {}

    def step():
        try:
            ends["step"] = connect(listener.address, step_key)
        except ChannelClosed as error:
            ends["step"] = error

    thread = threading.Thread(target=step)
    thread.start()
    try:
        ends["driver"] = listener.accept(LONG)
    except ChannelClosed as error:
        ends["driver"] = error
    thread.join()
    listener.close()
    try:
        yield ends["driver"], ends["step"]
    finally:
        for end in ends.values():
            if isinstance(end, Channel):
                end.close()


@PLACES
def test_frames_arrive_whole_and_in_order_both_ways(host):
    with both_ends(host) as (driver, step):
        frames = [b"", b"x", os.urandom(3_000_000)]
        sender = threading.Thread(target=lambda: [driver.send(frame) for frame in frames])
        sender.start()
        assert [step.receive() for _ in frames] == frames
        sender.join()
        step.send(b"report")
        assert driver.receive() == b"report"
        step.close()
        assert driver.receive() is None


@PLACES
def test_nobody_gets_in_without_the_key(host):
    with both_ends(host, step_key=OTHER_KEY) as (driver, step):
        assert isinstance(driver, ChannelClosed)
        assert isinstance(step, ChannelClosed)


def test_an_answer_that_is_sent_back_proves_nothing():
    listener = Listener(KEY, None)
    with socket.socket(socket.AF_UNIX) as mirror:
        mirror.connect(listener.address)

        def reflect():
            with contextlib.suppress(OSError):
                while data := mirror.recv(1 << 16):
                    mirror.sendall(data)

        thread = threading.Thread(target=reflect)
        thread.start()
        with pytest.raises(ChannelClosed, match="does not hold the key"):
            listener.accept(LONG)
        thread.join()
    listener.close()


@pytest.fixture
def open_end():
    """A channel, and the bare socket at its other end."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours), theirs


def test_a_length_is_not_believed(open_end):
    channel, other = open_end
    other.sendall(struct.pack(">I", (64 << 20) + 1))
    with pytest.raises(ChannelClosed, match="67108865 bytes was announced"):
        channel.receive()


def test_a_frame_that_breaks_off_is_no_end(open_end):
    channel, other = open_end
    other.sendall(struct.pack(">I", 10) + b"abc")
    other.close()
    with pytest.raises(ChannelClosed, match="7 bytes before the end of a frame"):
        channel.receive()


def test_a_bound_wait_ends(open_end):
    channel, _ = open_end
    channel.bound(0.01)
    with pytest.raises(ChannelClosed, match="timed out"):
        channel.receive()


def test_the_socket_lies_where_nobody_else_may_go_and_leaves_nothing():
    listener = Listener(KEY, None)
    folder = Path(listener.address).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert listener.accept(0.01) is None
    listener.close()
    assert not folder.exists()
    with pytest.raises(ChannelClosed, match="cannot be reached"):
        connect(listener.address, KEY)


def test_a_temporary_folder_that_is_too_long_for_a_socket_is_not_used(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    listener = Listener(KEY, None)
    assert len(os.fsencode(listener.address)) <= LONGEST_PATH
    folder = Path(listener.address).parent
    listener.close()
    assert not folder.exists()
