"""Final windows behind a repartition topic wait for those that write it and are behind."""

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

MINUTES = 200


def at(minute):
    return f"2024-01-01T{minute // 60:02}:{minute % 60:02}:00Z"


def by_place(source, sink, *, chained):
    builder = StreamsBuilder()
    rows = builder.stream(source, key=String("user"), value=Json("at timestamp, place string, way string"))
    rows = rows.withWatermark("at", "0 seconds")
    if chained:
        rows = rows.repartition("way")
    grouped = rows.groupBy("place", F.window("at", "1 minute"))
    final = grouped.agg(F.count("*").alias("count"), name="counts").outputMode("append")
    final.select("place", F.unix_millis("window.start").alias("start"), "count").to(
        sink, key=String("place"), value=Json()
    )
    return builder


def late_rows(streams):
    return sum(op["numRowsDroppedByWatermark"] for batch in streams.recentProgress for op in batch["stateOperators"])


def write(produce, source, partition, rows):
    produce(source, [{"key": f"user {partition}", "value": row, "partition": partition} for row in rows])


@pytest.mark.parametrize("chained", [False, True], ids=["one topic between", "two topics between"])
def test_partitions_whose_backlogs_are_of_other_lengths(instance, make_topic, produce, consumed, wait_until, chained):
    source, sink = make_topic("in", 2), make_topic("out", 1)
    # For every row of the first partition the second one has ten: fair shares bring the first far ahead.
    for partition, each in ((0, 1), (1, 10)):
        rows = [
            {"at": at(minute), "place": f"p{n % 3}", "way": f"w{(minute + n) % 5}"}
            for minute in range(MINUTES)
            for n in range(each)
        ]
        write(produce, source, partition, rows)
    with instance(by_place(source, sink, chained=chained), {"max.batch.records": 50}) as streams:
        streams.start()
        wait_until(lambda: streams.input_lags and not any(streams.input_lags.values()), streams.status)
        end = at(MINUTES + 60)
        closing = [{"at": end, "place": f"p{n}", "way": f"w{way}"} for n in range(3) for way in range(5)]
        for partition in (0, 1):
            write(produce, source, partition, closing)
        wait_until(lambda: len(consumed(sink)) == 3 * MINUTES, f"{streams.status}: {len(consumed(sink))}")
        assert late_rows(streams) == 0
        assert streams.exception() is None
    counts = [int(value.partition(b'"count":')[2].rstrip(b"}")) for _, _, _, value in consumed(sink)]
    assert sum(counts) == 11 * MINUTES
