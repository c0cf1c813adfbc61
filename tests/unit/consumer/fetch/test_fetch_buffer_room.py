"""What is fetched while data waits, and how much may wait."""

from __future__ import annotations

import pytest
from tests.unit.consumer.fetched_data import T0, T1, T2, records, rows

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.consumer.fetch.fetching import Fetched
from sparkrelay.errors import BrokerResponseException


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


def test_where_records_are_taken_from_is_known(buffering):
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
