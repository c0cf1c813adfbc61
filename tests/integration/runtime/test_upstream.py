"""Final windows behind a repartition topic wait for those that write it and are behind."""

import contextlib
import random

import pytest
from pyspark.sql import functions as F
from tests.waiting import LONG

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.transactions import TransactionCoordinator

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

MINUTES = 200


def at(minute):
    return f"2024-01-01T{minute // 60:02}:{minute % 60:02}:00Z"


def by_place(source, sink, *, chained=False):
    builder = StreamsBuilder()
    rows = builder.stream(source, key=String("user"), value=Json("at timestamp, place string, way string"))
    rows = rows.withWatermark("at", "0 seconds").where("place <> 'nowhere'")
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


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_no_row_is_late_where_tasks_are_initialized_again_in_a_backlog(
    instance, kafka, application_id, tmp_path, make_topic, produce, consumed, wait_until, seed
):
    """Somebody takes the epochs of tasks by force; two instances drain the backlog by way of two repartition topics."""
    rng = random.Random(seed)
    source, sink = make_topic("in", 2), make_topic("out", 1)
    for partition, each in ((0, 1), (1, 10)):
        minutes = [minute for minute in range(MINUTES) for _ in range(each)]
        rows = [{"at": at(m), "place": f"p{n % 3}", "way": f"w{rng.randrange(5)}"} for n, m in enumerate(minutes)]
        write(produce, source, partition, rows)
    settings = {"max.batch.records": rng.choice([20, 50, 100]), "watermark.idle.ms": 60_000}
    with contextlib.ExitStack() as stack:
        both = [
            stack.enter_context(
                instance(by_place(source, sink, chained=True), settings | {"state.dir": str(tmp_path / f"state-{n}")})
            )
            for n in range(2)
        ]
        for streams in both:
            streams.start()
        with KafkaClient(ClientConfig(bootstrap_servers=kafka.bootstrap_servers)) as client:
            client.bootstrap(LONG)
            transactions, taken = TransactionCoordinator(client), 0

            def drained():
                nonlocal taken
                assert [one.exception() for one in both] == [None, None]
                ids = rng.sample([f"{application_id}-{part}_{n}" for part in range(3) for n in range(2)], 2)
                if taken < 12:
                    transactions.init(ids, transaction_timeout_ms=10_000)
                    taken += 1
                lags = [lag for one in both for lag in one.input_lags.values()]
                return taken == 12 and lags and not any(lags)

            wait_until(drained, lambda: f"{[one.status for one in both]}")
        closing = [{"at": at(MINUTES + 60), "place": f"p{n}", "way": f"w{w}"} for n in range(3) for w in range(5)]
        for partition in (0, 1):
            write(produce, source, partition, closing)
        wait_until(lambda: len(consumed(sink)) >= 3 * MINUTES, lambda: f"{len(consumed(sink))}")
        assert sum(late_rows(streams) for streams in both) == 0
    counts = [int(value.partition(b'"count":')[2].rstrip(b"}")) for _, _, _, value in consumed(sink)]
    assert (len(counts), sum(counts)) == (3 * MINUTES, 11 * MINUTES)


@pytest.mark.long
def test_a_backlog_of_rows_that_go_nowhere_and_then_somewhere(instance, make_topic, produce, consumed, wait_until):
    """Found by an attack: after a restart, a writer that had had nothing to write held nothing at first."""
    source, sink = make_topic("in", 2), make_topic("out", 1)
    nowhere = [{"at": at(0), "place": "nowhere", "way": "w"}] * 1000

    def real(*minutes):
        return [{"at": at(minute), "place": f"p{n}", "way": "w"} for minute in minutes for n in range(3)]

    with instance(by_place(source, sink)) as streams:
        streams.start()
        write(produce, source, 0, real(0))
        write(produce, source, 1, nowhere[:5])
        wait_until(lambda: streams.input_lags and not any(streams.input_lags.values()), streams.status)
    write(produce, source, 0, real(*range(1, 40), 300))
    write(produce, source, 1, [*nowhere, *real(*range(1, 40), 300)])
    with instance(by_place(source, sink), {"max.batch.records": 200}) as streams:
        streams.start()
        wait_until(lambda: len(consumed(sink)) == 3 * 40, f"{streams.status}: {len(consumed(sink))}")
        assert late_rows(streams) == 0
    counts = [int(value.partition(b'"count":')[2].rstrip(b"}")) for _, _, _, value in consumed(sink)]
    assert sum(counts) == 3 + 2 * 3 * 39
    assert streams.exception() is None


@pytest.mark.long
def test_windows_end_while_everything_of_one_partition_goes_nowhere(
    instance, make_topic, produce, consumed, wait_until
):
    source, sink = make_topic("in", 2), make_topic("out", 1)
    with instance(by_place(source, sink)) as streams:
        streams.start()
        for minute in range(20):
            write(produce, source, 0, [{"at": at(minute), "place": "p0", "way": "w"}])
            write(produce, source, 1, [{"at": at(minute), "place": "nowhere", "way": "w"}] * 20)
            wait_until(lambda count=minute: len(consumed(sink)) >= count, f"{streams.status}: {len(consumed(sink))}")
        assert streams.exception() is None


@pytest.mark.long
def test_a_join_waits_for_windows_for_as_long_as_their_backlog_takes(
    instance, make_topic, produce, consumed, wait_until
):
    """Their rows come after the whole backlog: longer than a stream that is silent is waited for."""
    source, sink = make_topic("in", 2), make_topic("out", 1)
    builder = StreamsBuilder()
    rows = builder.stream(source, key=String("user"), value=Json("at timestamp, place string, n long"))
    rows = rows.withWatermark("at", "0 seconds")
    most = rows.groupBy("place", F.window("at", "1 hour")).agg(F.max("n").alias("n"), name="most").outputMode("append")
    most = most.selectExpr("place", "n", "window.end AS over").repartition("n")
    found = rows.repartition("n").join(most.withWatermark("over", "0 seconds"), ["n", "place"], within="1 hour")
    found.select("place", "n").to(sink, key=String("place"), value=Json())
    for partition in (0, 1):
        backlog = [{"at": at(n % 60), "place": f"p{n % 3}", "n": 2 * n + partition} for n in range(1500)]
        write(produce, source, partition, backlog)
        write(produce, source, partition, [{"at": at(900), "place": f"p{n}", "n": -n - 1} for n in range(3)])
    with instance(builder, {"max.batch.records": 100, "join.idle.ms": 300}) as streams:
        streams.start()
        wait_until(lambda: len(consumed(sink)) == 3, f"{streams.status}: {len(consumed(sink))}")
        assert streams.exception() is None
    assert sorted(value for *_, value in consumed(sink)) == [
        f'{{"place":"p{n}","n":{2 * (1497 + n) + 1}}}'.encode() for n in range(3)
    ]
