"""Fetched data on its way to the table that `poll` returns: order, positions, and what is dropped."""

from __future__ import annotations

import pytest
from tests.unit.consumer.fetched_data import T0, T1, joined, positions, records, rows

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.consumer.base.subscription import LeaderView
from sparkrelay.consumer.fetch.fetching import Fetched
from sparkrelay.errors import AuthorizationException, CorruptRecordException, UnknownTopicException


def test_collected_records_move_the_position_and_leave_the_rest(buffering):
    buffering.fetched([Fetched(T0, 0, records(["a", "b", "c"])), Fetched(T1, 0, records(["x"]))], 0.0)
    assert buffering.fetchable() == {T0: 3, T1: 1}
    assert rows(buffering.collect(2, None)) == [(0, 0, b"a"), (0, 1, b"b")]
    assert positions(buffering.subscription) == {T0: 2, T1: 0}
    assert rows(buffering.collect(10, None)) == [(0, 2, b"c"), (1, 0, b"x")]
    assert buffering.fetchable() == {T0: 3, T1: 1}
    assert rows(buffering.collect(10, None)) == []


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
    _, recreated = buffering.subscription.check(lambda p: LeaderView(True, 0, "other" if p == T0 else "one"))
    assert recreated == {T0}
    for _ in range(2):
        assert buffering.has_data()
        with pytest.raises(UnknownTopicException, match=r"position 0 of t-0 belongs to another record.*seek"):
            buffering.collect(10, None)
    buffering.subscription.seek(T0, 0)
    assert rows(buffering.collect(10, None)) == [(0, 0, b"a")]


def test_a_partition_that_had_its_turn_goes_to_the_end(buffering):
    assert list(buffering.fetchable()) == [T0, T1]
    buffering.fetched([Fetched(T0, 0, records(["a"]))], 0.0)
    buffering.collect(10, None)
    assert list(buffering.fetchable()) == [T1, T0]


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


# -- a change of leader while data waits -------------------------------------------------------------------------------


def epoch_at(buffering):
    position = buffering.subscription.committable()[T0]
    return position.offset, position.leader_epoch


def test_nothing_is_returned_of_a_position_in_doubt(buffering):
    buffering.subscription.check(lambda p: LeaderView(True, 3, None))
    buffering.fetched([Fetched(T0, 0, records(["a", "b"], epoch=3), leader_epoch=3)], 0.0, 1)
    assert rows(buffering.collect(1, None)) == [(0, 0, b"a")]
    assert epoch_at(buffering) == (1, 3)
    doubtful, _ = buffering.subscription.check(lambda p: LeaderView(True, 4, None))
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
