"""Tables with a history, and streams that look into them as of their rows' times, on the test driver."""

import pytest

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

RATE = Json("rate long")


def found(topic):
    return [(record.key, record.value, record.timestamp) for record in topic.read_records()]


def looking(history="1 hour", how="inner", **options):
    builder = StreamsBuilder()
    rates = builder.table("rates", key=String("cur"), value=RATE, history=history, **options)
    orders = builder.stream("orders", key=String("cur"), value=Json("n long"))
    orders.join(rates, "cur", how).to("out", value=Json())
    return builder.build()


@pytest.mark.parametrize("batch", ["record", "all"])
def test_a_row_finds_what_was_there_at_its_time(spark, batch):
    with TopologyTestDriver(looking(how="left"), spark=spark, batch=batch) as driver:
        rates, orders = driver.create_input_topic("rates"), driver.create_input_topic("orders")
        out = driver.create_output_topic("out", key=String())
        rates.pipe_input("eur", {"rate": 1}, 1000)
        rates.pipe_input("eur", {"rate": 2}, 2000)
        rates.pipe_input("usd", {"rate": 7}, 1500)
        rates.pipe_input("eur", None, 3000)
        rates.pipe_input("eur", {"rate": 4}, 4000)
        driver.process()
        times = (999, 1000, 1999, 2000, 2999, 3000, 3999, 4000, 9000)
        for at in times:
            orders.pipe_input("eur", {"n": at}, at)
        orders.pipe_input("usd", {"n": 1}, 1499)
        orders.pipe_input("usd", {"n": 2}, 1501)
        orders.pipe_input(None, {"n": 3}, 1501)
        rows = found(out)
        assert {at: value.get("rate") for key, value, at in rows if key == "eur"} == dict(
            zip(times, (None, 1, 1, 2, 2, None, None, 4, 4), strict=True)
        )
        assert [(key, value.get("rate")) for key, value, _ in rows if key != "eur"] == [
            ("usd", None),
            ("usd", 7),
            (None, None),
        ]
        assert driver.store("rates-table") == [{"cur": "eur", "rate": 4}, {"cur": "usd", "rate": 7}]
        driver.restart(from_changelog=True)
        assert driver.store("rates-table") == [{"cur": "eur", "rate": 4}, {"cur": "usd", "rate": 7}]
        orders.pipe_input("eur", {"n": 1}, 2500)
        assert [value["rate"] for _, value, _ in found(out)] == [2]
