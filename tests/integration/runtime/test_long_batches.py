"""Batches that take longer than transaction.timeout.ms, on a broker that aborts them at once."""

import time

import pytest
from pyspark.sql import functions as F

from sparkrelay import StreamsBuilder
from sparkrelay.errors import StreamsException

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

TIMEOUT_MS = 3000


@pytest.fixture(scope="module")
def kafka():
    from sparkrelay.devkafka import DevKafka

    # The coordinator looks for transactions to abort every 10 s otherwise.
    hasty = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    with DevKafka(heap_mb=384, server_properties=hasty) as broker:
        yield broker


def slow_pipeline(source, quick, slow):
    """The first leg writes at once, which opens the transaction; the second one takes as long as its rows say."""

    @F.udf("string")
    def dawdle(value):
        time.sleep(float(value))
        return value

    builder = StreamsBuilder()
    rows = builder.stream(source)
    rows.to(quick)
    rows.select(dawdle(F.col("value").cast("string")).cast("binary").alias("value")).to(slow)
    return builder


@pytest.mark.long
def test_a_batch_that_takes_too_long_is_tried_with_fewer_records(instance, make_topic, produce, consumed, wait_until):
    source, quick, slow = make_topic("in"), make_topic("quick"), make_topic("slow")
    produce(source, [(str(n), "0.04") for n in range(200)])
    settings = {"transaction.timeout.ms": TIMEOUT_MS, "max.batch.retries": 10}
    streams = instance(slow_pipeline(source, quick, slow), settings)
    streams.start()
    wait_until(
        lambda: streams.exception() or (len(consumed(quick)), len(consumed(slow))) == (200, 200),
        f"not all rows passed: {streams.status}",
        240,
    )
    assert streams.exception() is None
    assert sorted(int(key) for _, _, key, _ in consumed(quick)) == list(range(200))


@pytest.mark.long
def test_a_single_record_that_takes_too_long_ends_in_an_error_with_the_remedy(
    instance, make_topic, produce, consumed, wait_until
):
    source, quick, slow = make_topic("in"), make_topic("quick"), make_topic("slow")
    produce(source, [("k", str(2 * TIMEOUT_MS / 1000))])
    streams = instance(
        slow_pipeline(source, quick, slow), {"transaction.timeout.ms": TIMEOUT_MS, "max.batch.retries": 1}
    )
    streams.start()
    wait_until(lambda: streams.exception() is not None, "no error", 120)
    error = streams.exception()
    assert isinstance(error, StreamsException)
    assert f"transaction.timeout.ms={TIMEOUT_MS}" in str(error)
    assert "lower max.batch.records" in str(error)
    assert consumed(quick) == consumed(slow) == []
