"""A bad network between consumer and broker: no record is lost or comes twice, no thread is left, nothing hangs."""

import resource
import struct
import threading
import time

import pytest
from kafka.protocol.metadata import MetadataResponse
from tests.waiting import AVOIDED, within

from sparkrelay.errors import TimeoutException
from sparkrelay.types import TopicPartition

from .conftest import MODERN_SESSION_S

pytestmark = [
    pytest.mark.integration,
    pytest.mark.chaos,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning"),
]

FETCH, METADATA, COMMIT, FIND, JOIN, HEARTBEAT, LEAVE, SYNC, MODERN_HEARTBEAT = 1, 3, 8, 10, 11, 12, 13, 14, 68
KINDS = ["assigned", "classic", "consumer"]
GROUPS = ["classic", "consumer"]


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_connections_are_reset_again_and_again(proxy, ledger, make_consumer, reader, dice, kind):
    book = ledger(partitions=3)
    book.write(3000)
    one = reader(make_consumer(book.topic, kind, partitions=3, max_partition_fetch_bytes=4000))
    for _ in range(8):
        book.write(300)
        time.sleep(dice.uniform(0, 0.3))
        proxy.cut()
    book.wait_until_read(one)
    assert not one.errors


@pytest.mark.parametrize("kind", ["assigned", "classic"])
def test_answers_break_off_in_the_middle(proxy, ledger, make_consumer, reader, dice, kind):
    book = ledger(partitions=2)
    book.write(5000, size=200)
    left = [5]

    def tear(api, version, frame):
        if api in {FETCH, JOIN, SYNC, HEARTBEAT, FIND, METADATA} and left[0] and dice.random() < 0.4:
            left[0] -= 1
            return [frame[: dice.randrange(len(frame))], proxy.RESET]
        return frame

    proxy.on_response = tear
    one = reader(make_consumer(book.topic, kind, partitions=2, max_partition_fetch_bytes=20_000))
    book.wait_until_read(one)
    assert not one.errors
    assert not left[0], "the network was bad enough"


@pytest.mark.parametrize("kind", ["assigned", "classic"])
def test_answers_come_in_pieces_of_a_few_bytes(proxy, ledger, make_consumer, reader, dice, kind):
    book = ledger()
    book.write(200)

    def crumble(api, version, frame):
        pieces, position = [], 0
        while position < len(frame):
            # Long answers (versions) would take all day.
            size = dice.randrange(1, 4) if position < 64 or api != 18 else 256
            pieces.append(frame[position : position + size])
            position += size
        return pieces

    proxy.on_response = crumble
    one = reader(make_consumer(book.topic, kind, max_partition_fetch_bytes=2000, request_timeout_ms=20_000))
    book.wait_until_read(one)
    assert not one.errors


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_connection_is_dead_and_nobody_says_so(proxy, ledger, make_consumer, reader, wait_until, kind):
    book = ledger()
    book.write(100)
    one = reader(make_consumer(book.topic, kind))
    book.wait_until_read(one)
    # What is connected now swallows everything from here on; new connections work.
    with proxy.lock:
        dead, proxy.links = proxy.links, []
    for link in dead:
        link.mute()
    book.write(100)
    book.wait_until_read(one)
    assert not one.errors


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_the_network_is_a_black_hole_for_a_while(proxy, ledger, make_consumer, reader, wait_until, kind):
    book = ledger()
    book.write(100)
    one = reader(make_consumer(book.topic, kind))
    book.wait_until_read(one)
    proxy.deaf, before = True, one.polls
    book.write(100)
    time.sleep(3)  # twice request.timeout.ms
    wait_until(lambda: one.polls > before + 1, "poll does not return")
    proxy.deaf = frozenset()
    book.wait_until_read(one)
    assert not one.errors


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_nobody_can_connect_for_a_while(proxy, ledger, make_consumer, reader, kind):
    book = ledger()
    book.write(100)
    one = reader(make_consumer(book.topic, kind))
    book.wait_until_read(one)
    proxy.refusing = True
    proxy.cut()
    book.write(100)
    time.sleep(2)  # the outage
    proxy.refusing = False
    book.wait_until_read(one)
    assert not one.errors


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "session_s", "config"),
    # An answer may wait behind the one to a commit, which is late too: twice the delay, and a busy machine's own.
    [("classic", 15, {"session_timeout_ms": 15_000}), ("consumer", MODERN_SESSION_S, {})],
)
def test_a_slow_coordinator_slows_neither_fetching_nor_membership(
    proxy, ledger, make_consumer, reader, wait_until, kind, session_s, config
):
    book = ledger()
    book.write(100)
    lost = []
    callbacks = dict.fromkeys(("on_revoked", "on_lost"), lambda *_: lost.append(1))
    settings = {"request_timeout_ms": 10_000, **config}
    one = reader(make_consumer(book.topic, kind, callbacks=callbacks, **settings), commit=True)
    book.wait_until_read(one)
    proxy.delays = dict.fromkeys((HEARTBEAT, MODERN_HEARTBEAT, COMMIT, FIND), 2.0)
    started = time.monotonic()
    for _ in range(3):
        book.write(100)
        book.wait_until_read(one)
    # A member that was silent for the coordinator would be expelled by then.
    time.sleep(max(0.0, started + session_s + 2 - time.monotonic()))
    proxy.calm()
    assert not one.errors
    assert not lost, "it stayed a member"


@pytest.mark.long
@pytest.mark.parametrize("kind", GROUPS)
def test_committing_and_closing_into_a_black_hole_end_in_time(proxy, ledger, make_consumer, reader, kind):
    book = ledger()
    book.write(100)
    consumer = make_consumer(book.topic, kind, default_api_timeout_ms=1500, request_timeout_ms=AVOIDED * 1000)
    one = reader(consumer)
    book.wait_until_read(one)
    one.stop()
    proxy.mute = True
    proxy.requests.clear()
    with pytest.raises(TimeoutException, match="committing"):
        consumer.commit()
    with within():
        consumer.close(2)
    assert proxy.requests[LEAVE if kind == "classic" else MODERN_HEARTBEAT], "it tried to leave"


GARBAGE = {
    "random bytes": lambda frame, dice: dice.randbytes(200),
    "http": lambda frame, dice: b"HTTP/1.1 503 Service Unavailable\r\n\r\n" * 4,
    "wrong correlation id": lambda frame, dice: frame[:4] + struct.pack(">i", 99_999_999) + frame[8:],
    "huge frame": lambda frame, dice: struct.pack(">i", 2_000_000_000) + frame[4:],
    "large frame that never ends": lambda frame, dice: struct.pack(">i", 900_000_000) + frame[4:],
    "negative frame": lambda frame, dice: struct.pack(">i", -7) + frame[4:],
    "cut body": lambda frame, dice: struct.pack(">i", 12) + frame[4:16],
    "changed bytes": lambda frame, dice: frame[:8] + bytes(b ^ 0x55 for b in frame[8:40]) + frame[40:],
}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["assigned", "classic"])
@pytest.mark.parametrize("what", GARBAGE)
def test_the_broker_answers_garbage(proxy, ledger, make_consumer, reader, wait_until, dice, what, kind):
    book = ledger()
    book.write(100)
    one = reader(make_consumer(book.topic, kind))
    book.wait_until_read(one)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    spoilt = []

    def spoil(api, version, frame):
        # The corrupt body of a fetch could pass for records: that is what checksums are for, see the broker's tests.
        if api in {METADATA, HEARTBEAT, FIND, JOIN, SYNC} or (api == FETCH and what != "changed bytes"):
            spoilt.append(api)
            return GARBAGE[what](frame, dice)
        return frame

    proxy.on_response = spoil
    proxy.cut()
    wait_until(lambda: len(spoilt) >= 3, "nothing is asked any more")
    proxy.calm()
    book.write(100)
    book.wait_until_read(one)
    assert all(getattr(error, "retriable", True) for error in one.errors), one.errors
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - grown < 300_000, "kilobytes"


@pytest.mark.long
@pytest.mark.parametrize("kind", ["assigned", "classic"])
def test_metadata_shrinks_and_grows_again(proxy, ledger, make_consumer, reader, wait_until, kind):
    book = ledger(partitions=2)
    book.write(100)
    # A member whose topic vanishes gives it up, and goes on from what it has committed when it is back.
    one = reader(make_consumer(book.topic, kind, partitions=2, metadata_max_age_ms=200), commit=kind == "classic")
    book.wait_until_read(one)
    changed = []

    def shrink(api, version, frame):
        if api != METADATA:
            return frame
        message = MetadataResponse[version].decode(frame[9:])
        if len(changed) % 2:
            message.brokers = []
        else:
            message.topics = []
        changed.append(1)
        fields = ("throttle_time_ms", "brokers", "cluster_id", "controller_id", "topics")
        again = MetadataResponse(**{name: getattr(message, name) for name in fields}, version=version)
        body = frame[4:9] + bytes(again.encode(version=version))
        return struct.pack(">i", len(body)) + body

    proxy.on_response = shrink
    wait_until(lambda: len(changed) >= 4, "metadata is not asked for")
    book.write(100)
    proxy.calm()
    proxy.cut()
    book.wait_until_read(one)
    assert not one.errors


@pytest.mark.long
def test_the_name_stops_resolving(proxy, ledger, make_consumer, reader, names, wait_until, caplog):
    book = ledger()
    book.write(100)
    one = reader(make_consumer(book.topic, "classic", request_timeout_ms=20_000))
    book.wait_until_read(one)
    names.lost = True
    book.write(100)
    book.wait_until_read(one)  # connections that are open need no name
    proxy.cut()
    wait_until(lambda: "the name kafka.localhost cannot be resolved" in caplog.text, "nobody says why")
    book.write(100)
    names.lost = False
    book.wait_until_read(one)
    assert not one.errors


def test_a_name_server_that_hangs_holds_nobody_up(proxy, ledger, make_consumer, reader, names, bench):
    book = ledger()
    book.write(100)
    names.slow.clear()
    consumer = make_consumer(
        book.topic, "assigned", socket_connection_setup_timeout_ms=500, default_api_timeout_ms=2000
    )
    with pytest.raises(TimeoutException, match=r"looking up the name kafka.localhost took longer than"):
        consumer.end_offsets([TopicPartition(book.topic, 0)])
    with within():
        consumer.close(1)
    names.slow.set()
    again = reader(make_consumer(book.topic))
    book.wait_until_read(again)


@pytest.mark.long
def test_many_consumers_leave_no_thread_or_file_behind(proxy, ledger, make_consumer, wait_until):
    from pathlib import Path

    def files():
        return len(list(Path("/proc/self/fd").iterdir()))

    book = ledger()
    book.write(10)
    threads, before = threading.active_count(), None
    for turn in range(12):
        consumer = make_consumer(book.topic, "classic" if turn % 2 else "assigned")
        consumer.poll(0.5)
        proxy.cut()
        consumer.poll(0.1)
        consumer.close(5)
        proxy.cut()
        if turn == 3:
            before = files()
    wait_until(lambda: files() <= before + 4, lambda: f"{files()} files are open, {before} were")
    wait_until(lambda: threading.active_count() <= threads + 4, "threads are left")
