"""Fetched data on its way to the table that `poll` returns: order, limits, memory, and what is dropped."""

from __future__ import annotations

import itertools
import linecache
import struct
import sys
from collections import deque

import crc32c
import pyarrow as pa
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.consumer import fetch_buffer
from sparkrelay.consumer.events import Mailbox
from sparkrelay.consumer.fetch_buffer import TABLE_SCHEMA, FetchBuffer
from sparkrelay.consumer.fetching import Fetched
from sparkrelay.consumer.subscription import LeaderView, SubscriptionState
from sparkrelay.errors import (
    AuthorizationException,
    BrokerResponseException,
    CorruptRecordException,
    UnknownTopicException,
    UnsupportedVersionException,
)
from sparkrelay.records import decode as decoder
from sparkrelay.records.encode import encode
from sparkrelay.types import TopicPartition

T0, T1, T2 = (TopicPartition("t", p) for p in range(3))


def records(values, base=0, epoch=0, compression="none"):
    values = pa.array([v.encode() for v in values], pa.binary())
    (batch,) = encode(None, values, timestamps=0, compression=compression)
    data = bytearray(batch.data)
    struct.pack_into(">q", data, 0, base)  # outside of the checksum, like the epoch
    struct.pack_into(">i", data, 12, epoch)
    return memoryview(bytes(data))


def joined(*parts):
    return memoryview(b"".join(bytes(part) for part in parts))


@pytest.fixture
def buffering():
    subscription, mailbox, resets = SubscriptionState(), Mailbox(), []
    buffer = FetchBuffer(
        subscription, mailbox, read_committed=True, check_crcs=True, out_of_range=lambda p, o: resets.append((p, o))
    )
    buffer.subscription, buffer.resets = subscription, resets
    subscription.assign_by_hand([T0, T1])
    subscription.seek(T0, 0)
    subscription.seek(T1, 0)
    return buffer


def positions(subscription):
    return {partition: place.offset for partition, place in subscription.committable().items()}


def rows(table):
    assert table.schema == TABLE_SCHEMA
    return [(r["partition"], r["offset"], r["value"]) for r in table.to_pylist()]


def test_collected_records_move_the_position_and_leave_the_rest(buffering):
    buffering.fetched([Fetched(T0, 0, records(["a", "b", "c"])), Fetched(T1, 0, records(["x"]))], 0.0)
    assert buffering.fetchable() == {T0: 3, T1: 1}
    assert rows(buffering.collect(2, None)) == [(0, 0, b"a"), (0, 1, b"b")]
    assert positions(buffering.subscription) == {T0: 2, T1: 0}
    assert rows(buffering.collect(10, None)) == [(0, 2, b"c"), (1, 0, b"x")]
    assert buffering.fetchable() == {T0: 3, T1: 1}
    assert rows(buffering.collect(10, None)) == []


def test_bytes_are_limited_but_one_row_always_comes(buffering):
    buffering.fetched([Fetched(T0, 0, records(["a" * 10, "b" * 10, "c" * 10]))], 0.0)
    assert len(rows(buffering.collect(100, 25))) == 2
    assert len(rows(buffering.collect(100, 1))) == 1
    assert rows(buffering.collect(100, 1)) == []


def test_no_records_of_partitions_that_are_being_revoked_or_were_lost(buffering):
    """KAFKA-20332, KAFKA-20321."""
    buffering.fetched([Fetched(T0, 0, records(["a"])), Fetched(T1, 0, records(["x"]))], 0.0)
    buffering.subscription.give_up([T0])
    assert rows(buffering.collect(10, None)) == [(1, 0, b"x")]
    buffering.subscription.drop([T0])
    assert not buffering.has_data()
    assert rows(buffering.collect(10, None)) == []


def test_paused_partitions_keep_their_data_for_later(buffering):
    buffering.fetched([Fetched(T0, 0, records(["a"]))], 0.0)
    buffering.subscription.set_paused([T0], True)
    assert not buffering.has_data()
    assert rows(buffering.collect(10, None)) == []
    assert T0 not in buffering.fetchable()
    buffering.subscription.set_paused([T0], False)
    assert rows(buffering.collect(10, None)) == [(0, 0, b"a")]


def test_data_from_before_a_seek_is_dropped(buffering):
    buffering.fetched([Fetched(T0, 0, records(["a", "b"]))], 0.0)
    buffering.subscription.seek(T0, 5)
    assert rows(buffering.collect(10, None)) == []
    assert positions(buffering.subscription)[T0] == 5


def test_an_error_waits_until_what_came_before_it_was_returned(buffering):
    buffering.fetched([Fetched(T0, 0, records(["a"])), Fetched(T1, 0, memoryview(b""), error_code=29)], 0.0)
    assert rows(buffering.collect(10, None)) == [(0, 0, b"a")]
    with pytest.raises(Exception, match=r"t-1 at offset 0: TOPIC_AUTHORIZATION_FAILED"):
        buffering.collect(10, None)


def test_a_damaged_batch_does_not_take_others_along(buffering):
    damaged = bytearray(records(["x", "y"]))
    damaged[-3] ^= 0xFF
    buffering.fetched([Fetched(T0, 0, records(["a"])), Fetched(T1, 0, memoryview(bytes(damaged)))], 0.0)
    assert rows(buffering.collect(10, None)) == [(0, 0, b"a")]
    with pytest.raises(CorruptRecordException, match="t-1"):
        buffering.collect(10, None)
    assert positions(buffering.subscription)[T1] == 0


def test_a_position_out_of_range_is_looked_up_again_and_a_remade_topic_is_an_error(buffering):
    buffering.fetched([Fetched(T0, 0, memoryview(b""), error_code=ErrorCode.OFFSET_OUT_OF_RANGE)], 0.0)
    assert rows(buffering.collect(10, None)) == []
    assert buffering.resets == [(T0, 0)]
    buffering.fetched([Fetched(T1, 0, memoryview(b""), error_code=ErrorCode.UNKNOWN_TOPIC_ID)], 0.0)
    with pytest.raises(UnknownTopicException, match="deleted and created again"):
        buffering.collect(10, None)


def test_a_remade_topic_is_said_at_each_poll_until_somebody_seeks(buffering):
    """franz-go #1426."""
    buffering.fetched([Fetched(T0, 0, records(["a"]))], 0.0)
    buffering.subscription.check(lambda p: LeaderView(True, 0, "one"))
    checked = buffering.subscription.check(lambda p: LeaderView(True, 0, "other" if p == T0 else "one"))
    assert checked.recreated == {T0}
    for _ in range(2):
        assert buffering.has_data()
        with pytest.raises(UnknownTopicException, match=r"position 0 of t-0 means another record.*seek"):
            buffering.collect(10, None)
    buffering.subscription.seek(T0, 0)
    assert rows(buffering.collect(10, None)) == [(0, 0, b"a")]


def test_a_partition_that_had_its_turn_goes_to_the_end(buffering):
    assert list(buffering.fetchable()) == [T0, T1]
    buffering.fetched([Fetched(T0, 0, records(["a"]))], 0.0)
    buffering.collect(10, None)
    assert list(buffering.fetchable()) == [T1, T0]


# -- what is fetched while data waits ----------------------------------------------------------------------------------


def test_what_waits_is_not_fetched_again_but_stays_wanted(buffering):
    """KAFKA-17182: dropped from the request, it would have to be added to the session again."""
    buffering.fetched([Fetched(T0, 0, records(["a", "b"]))], 0.0, 1)
    assert buffering.fetchable() == {T0: 2, T1: 0}
    buffering.fetched([Fetched(T0, 2, records(["c"], 2))], 0.0, 1)
    assert buffering.fetchable() == {T0: 3, T1: 0}
    assert rows(buffering.collect(10, None)) == [(0, 0, b"a"), (0, 1, b"b"), (0, 2, b"c")]
    assert buffering.fetchable() == {T0: 3, T1: 0}


def test_at_most_two_responses_of_a_broker_wait(buffering):
    assert buffering.has_room(1)
    buffering.fetched([Fetched(T0, 0, records(["a"])), Fetched(T1, 0, records(["x"]))], 0.0, 1)
    assert buffering.has_room(1)
    buffering.fetched([Fetched(T0, 1, records(["b"], 1))], 0.0, 1)
    assert not buffering.has_room(1)
    assert buffering.has_room(2)
    buffering.made_room()
    buffering.collect(1, None)  # T0's part of the first response is gone, T1's is not
    assert not buffering.has_room(1)
    buffering.collect(1, None)
    assert buffering.has_room(1)
    assert buffering.made_room()
    assert not buffering.made_room()


def test_taking_a_few_of_many_does_not_wake_the_network_thread(buffering):
    """KAFKA-20535: a thread's turn for each record would cost more than the record."""
    buffering.fetched([Fetched(T0, 0, records(["a"] * 10))], 0.0, 1)
    buffering.made_room()
    for _ in range(10):
        buffering.collect(1, None)
        assert not buffering.made_room()  # what follows was asked for when these came


@pytest.mark.parametrize("how", ["full", "pause", "error", "drop"])
def test_what_was_not_asked_for_wakes_the_network_thread(buffering, how):
    """There was no room, or nobody knew where to go on."""
    for offset in range(2 if how == "full" else 1):
        error = ErrorCode.CORRUPT_MESSAGE if how == "error" else 0
        buffering.fetched([Fetched(T0, offset, records(["a"], offset), error_code=error)], 0.0, 1)
    if how == "pause":
        buffering.subscription.set_paused([T0], True)
        buffering.fetchable()
        buffering.subscription.set_paused([T0], False)
    buffering.made_room()
    if how == "error":
        with pytest.raises(BrokerResponseException, match="CORRUPT_MESSAGE"):
            buffering.collect(1, None)
    elif how == "drop":
        buffering.drop(T0)
    else:
        buffering.collect(1, None)
    assert buffering.made_room()
    assert T0 in buffering.fetchable()


def test_where_records_are_taken_from_is_told(buffering):
    buffering.fetched([Fetched(T0, 0, records(["a", "b", "c"])), Fetched(T1, 0, records(["x"]))], 0.0, 1)
    buffering.collect(1, None)
    began = {}
    buffering.collect(9, None, began)
    assert began == {T0: 1, T1: 0}


def test_responses_with_nothing_of_use_take_no_room(buffering):
    for _ in range(5):
        buffering.fetched([Fetched(T0, 0, memoryview(b"")), Fetched(T2, 0, records(["not ours"]))], 0.0, 1)
        buffering.fetched([Fetched(T0, 77, records(["from before a seek"], 77))], 0.0, 1)
    assert buffering.has_room(1)
    assert not buffering.has_data()


def test_paused_partitions_clog_nothing_and_keep_no_response(buffering):
    whole = bytearray(bytes(records(["a"])) + b"\0" * 1_000_000)
    part = memoryview(whole)[: len(records(["a"]))]
    buffering.fetched([Fetched(T0, 0, part)], 0.0, 1)
    buffering.fetched([Fetched(T0, 1, records(["b"], 1))], 0.0, 1)
    assert not buffering.has_room(1)
    buffering.subscription.set_paused([T0], True)
    assert rows(buffering.collect(10, None)) == []
    assert buffering.has_room(1)
    part.release()
    whole.clear()  # nobody looks at the response any more, else this would be an error
    buffering.subscription.set_paused([T0], False)
    assert T0 not in buffering.fetchable()  # what was kept counts for no response, so no more of it
    assert rows(buffering.collect(10, None)) == [(0, 0, b"a"), (0, 1, b"b")]
    assert buffering.fetchable()[T0] == 2


@pytest.mark.parametrize("hold", ["pause", "revoke"])
def test_paused_partitions_make_room_although_nobody_collects(buffering, hold):
    """Only what cannot be returned waits, so nobody asks for it; others must be fetched all the same."""
    for offset in range(2):
        buffering.fetched([Fetched(T0, offset, records(["a"], offset))], 0.0, 1)
    assert not buffering.has_room(1)
    if hold == "pause":
        buffering.subscription.set_paused([T0], True)
    else:
        buffering.subscription.give_up([T0])
    assert not buffering.has_data()
    assert buffering.fetchable() == {T1: 0}
    assert buffering.has_room(1)


def test_a_position_that_is_looked_up_drops_what_waits(buffering):
    buffering.fetched([Fetched(T0, 0, records(["a"]))], 0.0, 1)
    buffering.subscription.seek_to([T0], -1)
    assert buffering.fetchable() == {T1: 0}
    assert len(buffering._parts) == 0


def test_records_that_did_not_reach_the_application_come_again(buffering):
    buffering.fetched([Fetched(T0, 0, records(["a", "b", "c"]))], 0.0, 1)
    buffering.collect(2, None)
    buffering.subscription.go_back(T0, 1)
    buffering.subscription.go_back(T0, 7)  # never forward
    assert buffering.fetchable() == {T0: 1, T1: 0}
    buffering.fetched([Fetched(T0, 1, records(["a", "b", "c"]))], 0.0, 1)
    assert rows(buffering.collect(10, None)) == [(0, 1, b"b"), (0, 2, b"c")]


def test_a_changed_assignment_drops_what_waits_for_it(buffering):
    buffering.fetched([Fetched(T0, 0, records(["a"])), Fetched(T1, 0, records(["x"]))], 0.0, 1)
    buffering.fetched([Fetched(T1, 1, records(["y"], 1))], 0.0, 1)
    assert not buffering.has_room(1)
    buffering.subscription.assign_by_hand([T0, T2])
    buffering.fetchable()  # the network thread looks around
    assert buffering.has_room(1)
    assert len(buffering._parts) == 1
    buffering.subscription.assign_by_hand([T0, T1])
    buffering.subscription.seek(T1, 0)
    assert buffering.fetchable() == {T0: 1, T1: 0}


def test_seeks_without_a_poll_between_them_pile_nothing_up(buffering):
    for offset in range(5):
        buffering.subscription.seek(T0, offset)
        buffering.fetchable()
        buffering.fetched([Fetched(T0, offset, records(["a"], offset))], 0.0, 1)
    assert len(buffering._parts) == 1
    assert buffering.has_room(1)


# -- a change of leader while data waits -------------------------------------------------------------------------------


def epoch_at(buffering):
    position = buffering.subscription.committable()[T0]
    return position.offset, position.leader_epoch


def test_nothing_is_returned_of_a_position_in_doubt(buffering):
    buffering.subscription.check(lambda p: LeaderView(True, 3, None))
    buffering.fetched([Fetched(T0, 0, records(["a", "b"], epoch=3), leader_epoch=3)], 0.0, 1)
    assert rows(buffering.collect(1, None)) == [(0, 0, b"a")]
    assert epoch_at(buffering) == (1, 3)
    doubtful = buffering.subscription.check(lambda p: LeaderView(True, 4, None)).doubtful
    assert doubtful == {T0: (1, 3)}
    assert rows(buffering.collect(1, None)) == []
    buffering.drop(T0)
    # An answer of the old leader that comes late is dropped, also once the new one has confirmed the position.
    late = Fetched(T0, 1, records(["b"], 1, epoch=3), leader_epoch=3)
    buffering.fetched([late], 0.0, 1)
    buffering.subscription.confirmed(T0, (1, 3), 4)
    buffering.fetched([late], 0.0, 1)
    assert rows(buffering.collect(1, None)) == []
    buffering.fetched([Fetched(T0, 1, records(["B"], 1, epoch=4), leader_epoch=4)], 0.0, 1)
    assert rows(buffering.collect(1, None)) == [(0, 1, b"B")]
    assert epoch_at(buffering) == (2, 4)


def test_positions_carry_the_epoch_of_the_record_in_front_of_them(buffering):
    data = joined(records(["a", "b"], 0, 3), records(["c"], 2, 3), records(["d", "e"], 3, 7))
    buffering.fetched([Fetched(T0, 0, data)], 0.0, 1)
    seen = []
    for _ in range(5):
        buffering.collect(1, None)
        seen.append(epoch_at(buffering))
    assert seen == [(1, 3), (2, 3), (3, 3), (4, 7), (5, 7)]


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_limits_are_kept_exactly_within_and_across_responses(buffering, compression, monkeypatch):
    monkeypatch.setattr(fetch_buffer, "_ROWS_AT_ONCE", 7)
    values = [str(i % 10) * (i % 13) for i in range(60)]
    parts = [records(values[i : i + 10], i, compression=compression) for i in range(0, 60, 10)]
    buffering.fetched([Fetched(T0, 0, joined(*parts[:3]))], 0.0, 1)
    buffering.fetched([Fetched(T0, 30, joined(*parts[3:]))], 0.0, 1)
    seen = []
    while table := rows(buffering.collect(9, 40)):
        sizes = [len(value) for _, _, value in table]
        at = len(seen)
        assert len(table) <= 9
        assert sum(sizes) <= 40
        following = values[at + len(table) : at + len(table) + 1]
        assert len(table) == 9 or not following or sum(sizes) + len(following[0]) > 40
        seen += [value.decode() for _, _, value in table]
    assert seen == values


def test_a_record_larger_than_the_limit_comes_alone(buffering):
    buffering.fetched([Fetched(T0, 0, records(["a", "b" * 100, "c"]))], 0.0, 1)
    assert [len(rows(buffering.collect(10, 50))) for _ in range(3)] == [1, 1, 1]


def test_each_record_is_decoded_once_however_few_are_taken(buffering, monkeypatch):
    """KAFKA-20535."""
    calls = []
    real = decoder.decode
    monkeypatch.setattr(decoder, "decode", lambda *args, **more: calls.append(1) or real(*args, **more))
    buffering.fetched([Fetched(T0, 0, records(["v"] * 5_000))], 0.0, 1)
    count = 0
    while buffering.collect(1, None).num_rows:
        count += 1
    assert count == 5_000
    assert len(calls) == 1


def test_topic_and_partition_columns_are_right_for_any_number_of_rows(buffering):
    buffering.fetched([Fetched(T0, 0, records(["a"] * 3)), Fetched(T1, 0, records(["x"] * 3_000))], 0.0, 1)
    table = buffering.collect(10_000, None)
    table.validate(full=True)
    assert table.column("partition").to_pylist() == [0] * 3 + [1] * 3_000
    assert table.column("topic").unique().to_pylist() == ["t"]
    buffering.subscription.assign_by_hand([TopicPartition("t", p) for p in range(200)])
    for number in range(200):
        partition = TopicPartition("t", number)
        buffering.subscription.seek(partition, 0)
        buffering.fetched([Fetched(partition, 0, records(["a"]))], 0.0, 1)
        assert rows(buffering.collect(10, None)) == [(number, 0, b"a")]


# -- damage ------------------------------------------------------------------------------------------------------------


def test_what_is_in_front_of_a_damaged_batch_is_returned_and_a_seek_behind_it_works(buffering):
    damaged = bytearray(records(["x", "y"], 2))
    damaged[-3] ^= 0xFF
    data = joined(records(["a", "b"]), damaged, records(["c"], 4))
    buffering.fetched([Fetched(T0, 0, data)], 0.0, 1)
    assert rows(buffering.collect(10, None)) == [(0, 0, b"a"), (0, 1, b"b")]
    with pytest.raises(CorruptRecordException, match="t-0: the record batch at offset 2 is damaged"):
        buffering.collect(10, None)
    assert positions(buffering.subscription)[T0] == 2
    # It is fetched again: perhaps it was the network.
    assert buffering.fetchable()[T0] == 2
    buffering.subscription.seek(T0, 4)
    buffering.fetched([Fetched(T0, 4, records(["c"], 4))], 0.0, 1)
    assert rows(buffering.collect(10, None)) == [(0, 4, b"c")]


def test_a_broken_header_in_the_middle_stops_fetching_behind_it(buffering):
    broken = bytearray(records(["x"], 2))
    struct.pack_into(">i", broken, 8, 20)
    buffering.fetched([Fetched(T0, 0, joined(records(["a", "b"]), broken))], 0.0, 1)
    assert T0 not in buffering.fetchable()
    assert rows(buffering.collect(10, None)) == [(0, 0, b"a"), (0, 1, b"b")]
    buffering.fetched([Fetched(T0, 2, memoryview(bytes(broken)))], 0.0, 1)
    with pytest.raises(CorruptRecordException, match="offset 2"):
        buffering.collect(10, None)
    assert positions(buffering.subscription)[T0] == 2


def test_bytes_without_a_whole_batch_are_an_error_and_no_endless_loop(buffering):
    lying = bytearray(records(["a"]))
    struct.pack_into(">i", lying, 8, 1 << 20)
    buffering.fetched([Fetched(T0, 0, memoryview(bytes(lying)))], 0.0, 1)
    with pytest.raises(CorruptRecordException, match=r"t-0: the \d+ bytes fetched at offset 0 hold no whole"):
        buffering.collect(10, None)


def test_an_old_format_behind_new_batches_is_an_error_that_says_so(buffering):
    message = struct.pack(">iBb", 0, 1, 0) + b"\0" * 8 + struct.pack(">ii", -1, 1) + b"x"
    old = struct.pack(">qi", 2, len(message)) + message
    buffering.fetched([Fetched(T0, 0, joined(records(["a", "b"]), old))], 0.0, 1)
    assert len(rows(buffering.collect(10, None))) == 2
    buffering.fetched([Fetched(T0, 2, memoryview(old))], 0.0, 1)
    with pytest.raises(UnsupportedVersionException, match="t-0.*offset 2.*message format v1"):
        buffering.collect(10, None)


def test_an_unknown_codec_is_a_named_error(buffering):
    data = bytearray(records(["a"]))
    struct.pack_into(">h", data, 21, 6)
    struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
    buffering.fetched([Fetched(T0, 0, memoryview(bytes(data)))], 0.0, 1)
    with pytest.raises(CorruptRecordException, match="t-0.*offset 0.*codec 6 is unknown"):
        buffering.collect(10, None)


# -- any order ---------------------------------------------------------------------------------------------------------


class Log:
    """A partition's batches: every record's value is its offset; some are missing, as compaction leaves them."""

    def __init__(self):
        self.batches, self.offsets = [], []
        for base in range(0, 60, 5):
            if base % 15 == 10:
                continue  # a gap
            self.batches.append((base, base + 4, records([f"{base + i}" for i in range(5)], base)))
            self.offsets += range(base, base + 5)

    def read(self, offset, count):
        found = [data for _, last, data in self.batches if last >= offset]
        return joined(*found[:count])


class Buffering(RuleBasedStateMachine):
    """A broker that answers what is wanted, and an application that does what it likes."""

    def __init__(self):
        super().__init__()
        self.log = Log()
        self.subscription = SubscriptionState()
        self.buffer = FetchBuffer(
            self.subscription, Mailbox(), read_committed=True, check_crcs=True, out_of_range=lambda p, o: None
        )
        self.in_flight = deque()
        self.next = {}
        self.subscription.assign_by_hand([T0, T1])
        for partition in (T0, T1):
            self.seek(partition, 0)

    partitions = st.sampled_from([T0, T1])

    def expected(self, partition):
        at = self.next[partition]
        return [offset for offset in self.log.offsets if offset >= at]

    @precondition(lambda self: not self.in_flight and self.buffer.has_room(1))
    @rule()
    def send(self):
        self.in_flight.append(dict(self.buffer.fetchable()))

    @precondition(lambda self: self.in_flight)
    @rule(count=st.integers(0, 3), which=st.sets(partitions, min_size=1))
    def answer(self, count, which):
        asked = self.in_flight.popleft()
        parts = [Fetched(p, offset, self.log.read(offset, count)) for p, offset in asked.items() if p in which]
        self.buffer.fetched(parts, 0.0, 1)

    @rule(partition=partitions, offset=st.integers(0, 60))
    def seek(self, partition, offset):
        if self.subscription.get(partition) is not None:
            self.subscription.seek(partition, offset)
            self.next[partition] = offset

    @rule(partition=partitions, paused=st.booleans())
    def pause(self, partition, paused):
        if self.subscription.get(partition) is not None:
            self.subscription.set_paused([partition], paused)

    @rule(kept=st.sets(partitions, min_size=1))
    def assign(self, kept):
        new = kept - self.subscription.assigned
        self.subscription.assign_by_hand(kept)
        for partition in new:
            self.seek(partition, self.next[partition])

    @rule(partition=partitions)
    def doubt(self, partition):
        self.buffer.drop(partition)

    @rule(max_records=st.integers(1, 20), max_bytes=st.sampled_from([None, 1, 5, 20]))
    def collect(self, max_records, max_bytes):
        table = self.buffer.collect(max_records, max_bytes)
        assert table.num_rows <= max_records
        for row in table.to_pylist():
            partition = TopicPartition("t", row["partition"])
            assert row["offset"] == self.expected(partition)[0]
            assert row["value"] == str(row["offset"]).encode()
            assert not self.subscription.get(partition).paused
            self.next[partition] = row["offset"] + 1

    @invariant()
    def memory_is_bounded(self):
        assert len({id(p.response) for p in self.buffer._parts if p.response is not None}) <= 2
        assert len(self.buffer._parts) == sum(map(len, self.buffer._chains.values()))
        kept = [p for p in self.buffer._parts if p.response is None]
        assert len(kept) <= 4

    @invariant()
    def positions_are_right(self):
        for partition, position in positions(self.subscription).items():
            assert self.next[partition] <= position <= (self.expected(partition) or [60])[0] or position >= 60


TestBuffering = Buffering.TestCase
TestBuffering.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_batch_that_no_column_can_hold_comes_in_parts(buffering, monkeypatch, compression):
    monkeypatch.setattr(decoder, "_BINARY_LIMIT", 100)
    monkeypatch.setattr(fetch_buffer, "_MOST_COLUMN_BYTES", 100)
    values = [str(i) * 30 for i in range(10)]
    buffering.fetched([Fetched(T0, 0, records(values, compression=compression))], 0.0)
    found = []
    while table := rows(buffering.collect(100, None)):
        found += table
    assert found == [(0, i, value.encode()) for i, value in enumerate(values)]


def test_a_record_that_no_column_can_hold_is_an_error_that_names_it(buffering, monkeypatch):
    monkeypatch.setattr(decoder, "_BINARY_LIMIT", 100)
    monkeypatch.setattr(fetch_buffer, "_MOST_COLUMN_BYTES", 100)
    buffering.fetched([Fetched(T0, 0, records(["a", "b" * 101]))], 0.0)
    assert rows(buffering.collect(100, None)) == [(0, 0, b"a")]
    with pytest.raises(CorruptRecordException, match="t-0: the record at offset 1 is larger than"):
        buffering.collect(100, None)
    assert positions(buffering.subscription)[T0] == 1


def test_an_error_that_repeats_itself_waits_once(buffering):
    for number in range(100):
        buffering.fetch_failed(AuthorizationException(f"no access to broker {number % 2}"), 0.0)
    for number in range(2):
        with pytest.raises(AuthorizationException, match=f"broker {number}"):
            buffering.collect(1, None)
    assert not buffering.has_data()
    buffering.fetch_failed(AuthorizationException("no access to broker 0"), 0.0)
    assert buffering.has_data()
    buffering.clear()
    assert not buffering.has_data()


class Interrupter:
    """Raises KeyboardInterrupt at one line of the buffer's code, as a signal may."""

    def __init__(self, after):
        self.left = after
        self.struck = False

    def __call__(self, frame, event, _):
        if frame.f_code.co_filename != fetch_buffer.__file__:
            return None
        # Not at the end of a with block, where only a tracer can strike: the lock would stay locked.
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and not self.struck and not text.startswith("with "):
            self.left -= 1
            if self.left <= 0:
                self.struck = True
                raise KeyboardInterrupt
        return self


@pytest.mark.parametrize("held_back", [False, True])
def test_after_an_interrupt_at_any_line_a_reset_buffer_is_as_new(held_back):
    """A program that catches Ctrl-C may go on to poll."""
    before = sys.gettrace()
    for after in itertools.count(1):
        subscription = SubscriptionState()
        buffer = FetchBuffer(
            subscription, Mailbox(), read_committed=True, check_crcs=True, out_of_range=lambda *_: None
        )
        subscription.assign_by_hand([T0, T1])
        for partition in (T0, T1):
            subscription.seek(partition, 0)
        for node in (1, 2):
            part = T0 if node == 1 else T1
            buffer.fetched([Fetched(part, 0, records(["a", "b"]))], 0.0, node)
            buffer.fetched([Fetched(part, 2, records(["c"], base=2))], 0.0, node)
        if held_back:
            subscription.release(but_not=[T0])
            subscription.give_up([T1])
            subscription.drop([T1])
        returned, moved_from, interrupter = [], {}, Interrupter(after)
        sys.settrace(interrupter)
        try:
            for most in (1, 10):
                table = buffer.collect(most, None, moved_from)
                returned, moved_from = returned + rows(table), {}
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        if not interrupter.struck:
            break
        for partition, offset in moved_from.items():
            subscription.go_back(partition, offset)
        subscription.release()
        told = buffer.changes
        buffer.reset()
        assert buffer.changes != told
        assert all(buffer.has_room(node) for node in (1, 2))
        values = ["a", "b", "c"]
        for partition, offset in buffer.fetchable().items():
            if offset < len(values):
                buffer.fetched([Fetched(partition, offset, records(values[offset:], base=offset))], 0.0, 1)
        returned += rows(buffer.collect(10, None))
        held = sorted(subscription.assigned)
        assert sorted(returned) == [(p.partition, i, v.encode()) for p in held for i, v in enumerate(values)]
    assert after > 20
