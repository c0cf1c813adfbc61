"""PlaintextConsumerAssignTest: partitions named by hand, the way executors read."""

from __future__ import annotations

import pytest
from tests.integration.consumer.conformance.protocols import without_members
from tests.waiting import LONG

pytestmark = [pytest.mark.integration, without_members]


def test_assign_and_commit_async_not_committed(make_consumer, fill, tp):
    """Nothing was returned, so nothing behind the start is committed."""
    fill(tp, 100)
    consumer = make_consumer()
    consumer.assign([tp])
    assert consumer.commit_async().result(LONG) is None
    assert not consumer.committed([tp])[tp]
    assert consumer.assignment() == {tp}


def test_assign_and_commit_sync_not_committed(make_consumer, fill, tp):
    """Nothing was returned, so nothing behind the start is committed."""
    fill(tp, 100)
    consumer = make_consumer()
    consumer.assign([tp])
    consumer.commit()
    assert not consumer.committed([tp])[tp]
    assert consumer.assignment() == {tp}


def test_assign_and_commit_sync_all_consumed(make_consumer, fill, expect_rows, tp):
    fill(tp, 1000)
    consumer = make_consumer()
    consumer.assign([tp])
    consumer.seek(tp, 0)
    expect_rows(consumer, tp, 1000)
    consumer.commit()
    assert consumer.committed([tp]) == {tp: 1000}


def test_assign_and_consume(make_consumer, fill, expect_rows, tp):
    fill(tp, 10)
    consumer = make_consumer(group_id=None)
    consumer.assign([tp])
    expect_rows(consumer, tp, 10)
    assert consumer.position(tp) == 10


def test_assign_and_consume_skipping_position(make_consumer, fill, expect_rows, tp):
    fill(tp, 10)
    consumer = make_consumer(group_id=None)
    consumer.assign([tp])
    consumer.seek(tp, 1)
    expect_rows(consumer, tp, 9, offset=1)
    assert consumer.position(tp) == 10


def test_assign_and_fetch_committed_offsets(make_consumer, fill, expect_rows, tp):
    fill(tp, 100)
    consumer = make_consumer()
    consumer.assign([tp])
    consumer.seek(tp, 0)
    expect_rows(consumer, tp, 100)
    consumer.commit()
    assert consumer.committed([tp]) == {tp: 100}
    other = make_consumer()
    other.assign([tp])
    assert other.committed([tp]) == {tp: 100}


def test_assign_and_consume_from_committed_offsets(make_consumer, fill, expect_rows, tp):
    fill(tp, 100)
    consumer = make_consumer()
    consumer.assign([tp])
    consumer.commit({tp: 10})
    assert consumer.committed([tp]) == {tp: 10}
    consumer.close()
    other = make_consumer()
    assert other.committed([tp]) == {tp: 10}
    other.assign([tp])
    expect_rows(other, tp, 90, offset=10)


def test_assign_and_retrieving_committed_offsets_multiple_times(make_consumer, fill, expect_rows, tp):
    fill(tp, 100)
    consumer = make_consumer()
    consumer.assign([tp])
    consumer.seek(tp, 0)
    expect_rows(consumer, tp, 100)
    consumer.commit()
    assert consumer.committed([tp]) == {tp: 100}
    assert consumer.committed([tp]) == {tp: 100}
