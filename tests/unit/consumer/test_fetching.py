"""Fetch requests and what becomes of answers, up to the table that `poll` returns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.messages import FetchResponse
from sparkrelay.consumer.events import Mailbox
from sparkrelay.consumer.fetch_buffer import TABLE_SCHEMA, FetchBuffer
from sparkrelay.consumer.fetching import Fetched, FetchManager, FetchSettings
from sparkrelay.consumer.subscription import SubscriptionState
from sparkrelay.errors import CorruptRecordException, DisconnectException, UnknownTopicException
from sparkrelay.records.encode import encode
from sparkrelay.types import TopicPartition

T0, T1, T2 = (TopicPartition("t", p) for p in range(3))


class Source:
    def __init__(self, wanted):
        self.wanted, self.parts, self.errors, self.full = dict(wanted), [], [], set()

    @property
    def changes(self):
        return object()

    def has_room(self, node):
        return node not in self.full

    def fetchable(self):
        return dict(self.wanted)

    def fetched(self, parts, now, node):
        self.parts += parts

    def fetch_failed(self, error, now):
        self.errors.append(error)


class Fetching:
    def __init__(self, driver, metadata, wanted):
        self.metadata, self.source, self.stale = metadata, Source(wanted), []
        self.id = metadata.topic_id("t")
        settings = FetchSettings(retry_backoff_ms=100)
        self.manager = FetchManager(metadata, settings, self.source, self.stale.append)
        self.driver = driver(self.manager)


def answer(*parts, topic_id):
    """Answers as (partition, code, records, more fields)."""
    make = FetchResponse.FetchableTopicResponse
    return FetchResponse(
        error_code=0,
        responses=[
            make(
                topic="",
                topic_id=topic_id,
                partitions=[
                    make.PartitionData(
                        partition_index=p, error_code=code, high_watermark=100, last_stable_offset=90,
                        log_start_offset=0, aborted_transactions=None, records=records, **more,
                    )
                    for p, code, records, more in parts
                ],
            )
        ],
    )  # fmt: skip


@pytest.fixture
def fetching(driver, cluster):
    return Fetching(driver, cluster({"t": 3}, brokers=(1, 2), leaders={("t", 2): 2}), {T0: 5, T1: 6, T2: 7})


def test_each_leader_gets_one_request_and_no_partition_two(fetching):
    assert fetching.driver.poll() == ["Fetch", "Fetch"]
    assert fetching.driver.pass_time(10) == []
    first = fetching.driver.waiting[0].request
    assert [(p.partition, p.fetch_offset) for p in first.topics[0].partitions] == [(0, 5), (1, 6)]
    assert first.topics[0].topic_id == fetching.id
    # The leader of T0 moves while it is being fetched: it is not asked for a second time.
    fetching.metadata.set_leader(T0, 2, 5)
    fetching.driver.waiting[1].handle(answer((2, 0, b"", {}), topic_id=fetching.id), None, 0.0)
    assert fetching.driver.poll() == ["Fetch"]
    assert [p.partition for p in fetching.driver.waiting[-1].request.topics[0].partitions] == [2]


def test_answers_are_handed_on_as_they_came(fetching):
    fetching.driver.poll()
    fetching.driver.answer(
        "Fetch",
        answer(
            (0, 0, memoryview(b"bytes"), {}),
            (1, ErrorCode.OFFSET_OUT_OF_RANGE, None, {}),
            topic_id=fetching.id,
        ),
    )
    one, two = fetching.source.parts
    assert (one.partition, one.offset, bytes(one.records), one.first) == (T0, 5, b"bytes", True)
    assert (one.high_watermark, one.last_stable_offset, one.log_start_offset) == (100, 90, 0)
    assert (two.partition, two.error_code, two.first) == (T1, ErrorCode.OFFSET_OUT_OF_RANGE, False)


def test_an_empty_answer_rearms_at_once(fetching):
    fetching.driver.poll()
    fetching.driver.answer("Fetch", answer((0, 0, b"", {}), (1, 0, b"", {}), topic_id=fetching.id))
    assert fetching.driver.poll() == ["Fetch"]


def test_a_partition_that_moved_is_asked_for_after_a_pause_or_at_once_where_the_answer_says(fetching):
    fetching.driver.poll()
    leader = FetchResponse.FetchableTopicResponse.PartitionData.LeaderIdAndEpoch(leader_id=2, leader_epoch=9)
    moved = ErrorCode.NOT_LEADER_OR_FOLLOWER
    fetching.driver.answer(
        "Fetch",
        answer((0, moved, None, {}), (1, moved, None, {"current_leader": leader}), topic_id=fetching.id),
    )
    assert fetching.source.parts == []
    assert fetching.stale == ["t"]
    assert fetching.metadata.leader(T1) == 2
    assert fetching.driver.poll() == []  # broker 2 is still busy, T0 pauses
    assert fetching.driver.pass_time(0.1) == ["Fetch"]


def test_a_lost_connection_is_tried_again_with_new_metadata(fetching):
    fetching.driver.poll()
    fetching.driver.answer("Fetch", error=DisconnectException("gone"))
    assert fetching.stale == ["t"]
    assert fetching.driver.poll() == []
    assert fetching.driver.pass_time(0.15) == ["Fetch"]


def test_a_partition_without_leader_asks_for_metadata(driver, cluster):
    fetching = Fetching(driver, cluster({}), {T0: 0})
    assert fetching.driver.poll() == []
    assert fetching.stale == ["t"]


# -- the buffer --------------------------------------------------------------------------------------------------------


def records(values, base=0):
    (batch,) = encode(None, pa.array([v.encode() for v in values], pa.binary()), timestamps=0)
    data = bytearray(batch.data)
    data[0:8] = base.to_bytes(8, "big")  # outside of the checksum
    return memoryview(bytes(data))


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


def rows(table):
    assert table.schema == TABLE_SCHEMA
    return [(r["partition"], r["offset"], r["value"]) for r in table.to_pylist()]


def test_collected_records_move_the_position_and_leave_the_rest(buffering):
    buffering.fetched([Fetched(T0, 0, records(["a", "b", "c"])), Fetched(T1, 0, records(["x"]))], 0.0)
    assert buffering.fetchable() == {T0: 3, T1: 1}
    assert rows(buffering.collect(2, None)) == [(0, 0, b"a"), (0, 1, b"b")]
    assert buffering.subscription.positions() == {T0: 2, T1: 0}
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
    buffering.subscription.hold_back([T0])
    assert rows(buffering.collect(10, None)) == [(1, 0, b"x")]
    buffering.subscription.keep([T1])
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
    assert buffering.subscription.positions()[T0] == 5


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
    assert buffering.subscription.positions()[T1] == 0


def test_a_position_out_of_range_is_looked_up_again_and_a_remade_topic_is_an_error(buffering):
    buffering.fetched([Fetched(T0, 0, memoryview(b""), error_code=ErrorCode.OFFSET_OUT_OF_RANGE)], 0.0)
    assert rows(buffering.collect(10, None)) == []
    assert buffering.resets == [(T0, 0)]
    buffering.fetched([Fetched(T1, 0, memoryview(b""), error_code=ErrorCode.UNKNOWN_TOPIC_ID)], 0.0)
    with pytest.raises(UnknownTopicException, match="deleted and created again"):
        buffering.collect(10, None)


def test_a_partition_that_had_its_turn_goes_to_the_end(buffering):
    assert list(buffering.fetchable()) == [T0, T1]
    buffering.fetched([Fetched(T0, 0, records(["a"]))], 0.0)
    buffering.collect(10, None)
    assert list(buffering.fetchable()) == [T1, T0]
