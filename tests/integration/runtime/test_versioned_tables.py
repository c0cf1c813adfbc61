"""Tables with a history, and rows that wait for them, on real instances: another one restores the changelogs."""

import pytest
from tests.waiting import remove_folder

from sparkrelay import Json, StreamsBuilder, String

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

#: Milliseconds since 1970 of the first record.
FIRST = 1_700_000_000_000


@pytest.fixture
def topics(make_topic):
    return make_topic("rates", 2), make_topic("orders", 2), make_topic("out", 1)


@pytest.fixture
def start(instance, topics):
    def run():
        builder = StreamsBuilder()
        rates = builder.table(
            topics[0],
            key=String("cur"),
            value=Json("rate int, since long"),
            timestamp="since",
            history="1 minute",
            name="rates",
        )
        orders = builder.stream(topics[1], key=String("cur"), value=Json("id string, at long"), timestamp="at")
        joined = orders.join(rates.drop("since"), "cur", "left", grace="10 seconds", name="waiting")
        joined.select("id", "rate").to(topics[2], key="id", value=Json())
        streams = instance(builder)
        streams.start()
        return streams

    return run


@pytest.mark.long
def test_rows_that_wait_and_a_history_outlive_an_instance(start, topics, produce, wait_for_table, tmp_path):
    """The proof on a real broker; tests/integration/testing/test_versioned_tables.py has the others."""

    def rate(cur, value, second):
        produce(topics[0], [(cur, {"rate": value, "since": FIRST + second * 1000})])

    def order(cur, name, second):
        produce(topics[1], [(cur, {"id": name, "at": FIRST + second * 1000})])

    for cur in ("eur", "usd", "chf"):
        rate(cur, 1, 0)
        rate(cur, 3, 30)
    with start() as streams:
        for cur in ("eur", "usd", "chf"):
            order(cur, f"{cur}-1", 5)
            order(cur, f"{cur}-2", 20)
        # What is over says that the others have come, too.
        first = {f"{cur}-1": 1 for cur in ("eur", "usd", "chf")}
        wait_for_table(topics[2], rows(first), streams)
    remove_folder(tmp_path / "state")
    for cur in ("eur", "usd", "chf"):
        rate(cur, 2, 15)
    with start() as streams:
        for cur in ("eur", "usd", "chf"):
            order(cur, f"{cur}-3", 50)
        second = {f"{cur}-2": 2 for cur in ("eur", "usd", "chf")}
        wait_for_table(topics[2], rows(first | second), streams)


def rows(found):
    return {name.encode(): {"id": name, "rate": rate} for name, rate in found.items()}
