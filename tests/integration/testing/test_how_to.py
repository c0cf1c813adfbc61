"""The scripts of docs/how-to that need no broker do what their pages say."""

import datetime as dt
import sqlite3
import struct
from contextlib import closing

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import Row, Window, functions as F
from pyspark.sql.streaming import StatefulProcessor
from tests.docs_pages import run
from tests.doubles.schema_registry import SchemaRegistryDouble

from sparkrelay import Avro, CustomFormat, Integer, Json, Long, Raw, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.records.framing import prefix
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration


def test_the_page_s_test_passes(spark):
    names = run("Test a pipeline")
    names["test_totals"](spark)
    names["test_totals_of_one_micro_batch"](spark)


def test_the_page_s_prices_are_aggregated(spark):
    imports = {"StreamsBuilder": StreamsBuilder, "String": String, "Json": Json, "F": F}
    with TopologyTestDriver(run("Aggregate", **imports)["daily_prices"](), spark=spark) as driver:
        trades = driver.create_input_topic("trades")
        for time, user, price in (("09:00", "ada", 8), ("17:00", "bob", 12), ("12:00", "ada", 10)):
            trades.pipe_input("x", {"user": user, "price": price, "at": f"2026-01-01T{time}:00Z"})
        row = driver.create_output_topic("daily-prices", value=Json()).read_rows()[-1]
        assert row == row | {"symbol": "x", "open": 8.0, "close": 12.0, "cheap": 1, "users": 2, "spread": 0.2}


def test_the_page_s_own_format_reads_and_writes(spark):
    imports = {"StreamsBuilder": StreamsBuilder, "String": String, "CustomFormat": CustomFormat, "pa": pa, "pc": pc}
    with TopologyTestDriver(run("A format of your own", **imports)["large_amounts"](), spark=spark) as driver:
        amounts = driver.create_input_topic("amounts")
        amounts.pipe_rows([("x", b"ada 99"), ("x", b"bob 101")])
        assert driver.create_output_topic("large", value=Raw()).read_rows() == [b"bob     101"]


def test_the_page_s_windows_end(spark):
    imports = {"StreamsBuilder": StreamsBuilder, "String": String, "Json": Json, "F": F}
    with TopologyTestDriver(run("Have windows end", **imports)["clicks_per_minute"](), spark=spark) as driver:
        clicks, out = driver.create_input_topic("clicks"), driver.create_output_topic("clicks-per-minute")
        for time in ("00:00:10", "00:00:50", "00:01:05", "00:10:59"):
            clicks.pipe_input("a", {"time": f"2026-01-01T{time}Z"})
        assert out.is_empty
        clicks.pipe_input("b", {"time": "2026-01-01T00:11:00Z"})
        (row,) = out.read_rows()
        assert (row["window"]["start"], row["page"], row["n"]) == ("2026-01-01T00:00:00.000Z", "a", 2)
        clicks.pipe_input("a", {"time": "2026-01-01T00:00:59Z"})
        assert out.is_empty, "it comes too late"
        assert [(row["page"], row["n"]) for row in driver.store("clicks-by-window-page")] == [
            ("a", 1),
            ("a", 1),
            ("b", 1),
        ]


def test_the_page_s_first_look_shows_rows(spark, capsys):
    imports = {"StreamsBuilder": StreamsBuilder, "String": String, "Json": Json}
    with TopologyTestDriver(
        run("Look at rows, or do something with each", **imports)["first_look"](), spark=spark
    ) as driver:
        clicks = driver.create_input_topic("clicks")
        for n in (1, 2):
            clicks.pipe_input("ada", {"page": "a", "n": n})
    assert "|   a|  2| ada|" in capsys.readouterr().out


def test_the_page_s_micro_batches_are_written_once(spark, tmp_path):
    imports = {"StreamsBuilder": StreamsBuilder, "String": String, "Json": Json}
    scripts = run("Write each micro-batch somewhere else", **imports)
    for made, where in (
        (scripts["orders_to_parquet"], tmp_path / "orders"),
        (scripts["orders_to_sqlite"], tmp_path / "db"),
    ):
        topology = made(str(where))
        (leg,) = topology.legs
        write, calls = leg.action.function, []

        def twice(df, batch_id, write=write, calls=calls):
            write(df, batch_id)
            write(df, batch_id)
            calls.append(batch_id)

        object.__setattr__(leg.action, "function", twice)
        with TopologyTestDriver(topology, spark=spark, partitions=2, batch="all") as driver:
            orders = driver.create_input_topic("orders")
            for id_ in range(20):
                orders.pipe_input(f"u{id_}", {"id": id_, "amount": 1.5})
            driver.process()
        assert {id_.task for id_ in calls} == {"0_0", "0_1"}
    found = spark.read.parquet(str(tmp_path / "orders"))
    assert sorted(row.id for row in found.collect()) == list(range(20))
    assert {(row.task, row.batch) for row in found.select("task", "batch").distinct().collect()} == {
        ("0_0", 1),
        ("0_1", 1),
    }
    with closing(sqlite3.connect(tmp_path / "db")) as database:
        assert sorted(id_ for (id_,) in database.execute("SELECT id FROM orders")) == list(range(20))


def test_the_page_s_streams_are_joined(spark):
    imports = {"StreamsBuilder": StreamsBuilder, "String": String, "Json": Json}
    with TopologyTestDriver(run("Join two streams", **imports)["views_with_clicks"](), spark=spark) as driver:
        views, clicks = driver.create_input_topic("views"), driver.create_input_topic("clicks")
        out = driver.create_output_topic("views-with-clicks")
        views.pipe_input("ada", {"ad": "a", "seen": "2026-01-01T00:00:00Z"})
        clicks.pipe_input("ada", {"page": "p", "time": "2026-01-01T00:09:00Z"})
        views.pipe_input("bob", {"ad": "b", "seen": "2026-01-01T00:01:00Z"})
        assert [(row["user"], row["ad"], row["page"]) for row in out.read_rows()] == [("ada", "a", "p")]
        for user, time in (("cid", "2026-01-01T00:12:00Z"), ("dan", "2026-01-01T00:13:00Z")):
            clicks.pipe_input(user, {"page": "p", "time": time})
            views.pipe_input(user, {"ad": "c", "seen": time})
        assert [(row["user"], row["ad"]) for row in out.read_rows()] == [("cid", "c"), ("dan", "c"), ("bob", "b")]


def test_the_page_s_duplicates_are_dropped(spark):
    imports = {"StreamsBuilder": StreamsBuilder, "String": String, "Json": Json}
    with TopologyTestDriver(run("Drop duplicates", **imports)["clicks_once"](), spark=spark) as driver:
        clicks, out = driver.create_input_topic("clicks"), driver.create_output_topic("clicks-once", key=String())
        for id_, page, time in (("1", "a", "00:00"), ("1", "b", "00:10"), ("2", "c", "00:21"), ("1", "d", "00:12")):
            clicks.pipe_input("ada", {"id": id_, "page": page, "time": f"2026-01-01T{time}:00Z"})
        assert [(record.key, record.value["page"]) for record in out.read_records()] == [
            ("ada", "a"),
            ("ada", "c"),
            ("ada", "d"),
        ]


def test_the_page_s_table_is_restored_without_a_copy(spark):
    imports = {"StreamsBuilder": StreamsBuilder, "String": String, "Json": Json, "F": F}
    page = run("Look things up in a table", **imports)
    with TopologyTestDriver(page["clicks_with_names"](), page["WITHOUT_COPIES"], spark=spark) as driver:
        users, clicks = driver.create_input_topic("users"), driver.create_input_topic("clicks")
        users.pipe_input("ada", {"name": "Ada", "country": "NO"})
        driver.restart(from_changelog=True)
        clicks.pipe_input("ada", {"page": "a"})
        rows = driver.create_output_topic("clicks-with-names").read_rows()
        assert rows == [{"user": "ada", "page": "a", "name": "Ada"}]


def test_the_page_s_lookup_finds_what_is_there(spark):
    imports = {"StreamsBuilder": StreamsBuilder, "String": String, "Json": Json, "F": F}
    with TopologyTestDriver(run("Look things up in a table", **imports)["clicks_by_country"](), spark=spark) as driver:
        users, clicks = driver.create_input_topic("users"), driver.create_input_topic("clicks")
        counts = driver.create_output_topic("clicks-by-country", key=String())
        norwegians = driver.create_output_topic("norwegians", key=String())
        clicks.pipe_input("ada", {"page": "a"})
        users.pipe_input("ada", {"name": "Ada", "country": "NO"})
        clicks.pipe_input("ada", {"page": "b"})
        users.pipe_input("ada", {"name": "Ada", "country": "UK"})
        users.pipe_input("bob", {"name": "Bob", "country": "UK"})
        clicks.pipe_input("ada", {"page": "c"})
        clicks.pipe_input("bob", {"page": "d"})
        assert [(row["country"], row["count"]) for row in counts.read_rows()] == [("NO", 1), ("UK", 1), ("UK", 2)]
        assert [(record.key, record.value) for record in norwegians.read_records()] == [
            ("ada", {"user": "ada", "name": "Ada", "country": "NO"}),
            ("ada", None),
        ]


def test_the_page_s_rates_are_those_of_the_orders_times(spark):
    imports = {"StreamsBuilder": StreamsBuilder, "String": String, "Json": Json, "F": F}
    with TopologyTestDriver(run("Look things up in a table", **imports)["orders_in_euros"](), spark=spark) as driver:
        rates, orders = driver.create_input_topic("rates"), driver.create_input_topic("orders")
        for day, rate in ((2, 2.0), (4, 4.0), (3, 3.0)):
            rates.pipe_input("usd", {"rate": rate, "since": f"2026-01-0{day}T00:00:00Z"})
        for day in (1, 2, 3, 5):
            orders.pipe_input("usd", {"amount": 10.0, "at": f"2026-01-0{day}T12:00:00Z"})
        rows = driver.create_output_topic("orders-in-euros").read_rows()
        assert [row["euros"] for row in rows] == [20.0, 30.0, 40.0]


def test_the_page_s_orders_wait(spark):
    imports = {"StreamsBuilder": StreamsBuilder, "String": String, "Json": Json, "F": F}
    with TopologyTestDriver(run("Look things up in a table", **imports)["orders_that_wait"](), spark=spark) as driver:
        rates, orders = driver.create_input_topic("rates"), driver.create_input_topic("orders")
        out = driver.create_output_topic("orders-that-waited")
        orders.pipe_input("usd", {"amount": 10.0}, 60_000)
        rates.pipe_input("usd", {"rate": 2.0}, 30_000)
        driver.process()
        orders.pipe_input("usd", {"amount": 20.0}, 359_999)
        assert out.is_empty
        orders.pipe_input("usd", {"amount": 30.0}, 360_000)
        assert [row["euros"] for row in out.read_rows()] == [20.0]


def test_the_page_s_orders_find_their_customers(spark):
    imports = {"StreamsBuilder": StreamsBuilder, "String": String, "Json": Json, "F": F}
    scripts = run("Join and combine tables", **imports)
    with TopologyTestDriver(scripts["orders_with_customers"](), spark=spark) as driver:
        orders, customers = driver.create_input_topic("orders"), driver.create_input_topic("customers")
        out = driver.create_output_topic("orders-with-customers")
        orders.pipe_input("o1", {"customer": "ada", "amount": 3})
        customers.pipe_input("ada", {"name": "Ada"})
        row = {"order_id": "o1", "customer": "ada", "amount": 3}
        assert out.read_rows() == [row, {**row, "name": "Ada"}]


def test_the_page_s_global_table_is_found_by_any_column(spark):
    imports = {"StreamsBuilder": StreamsBuilder, "String": String, "Json": Json, "F": F}
    scripts = run("Look things up in a table", **imports)
    with TopologyTestDriver(scripts["orders_by_continent"](), spark=spark, partitions=2) as driver:
        countries, orders = driver.create_input_topic("countries"), driver.create_input_topic("orders")
        countries.pipe_input("NO", {"continent": "Europe"})
        countries.pipe_input("PE", {"continent": "America"})
        for user, address, amount in (("a", "Oslo, no", 3), ("b", "Lima, pe", 4), ("c", "Bergen, no", 5)):
            orders.pipe_input(user, {"address": address, "amount": amount})
        rows = driver.create_output_topic("by-continent").read_rows()
        assert {row["continent"]: row["amount"] for row in rows} == {"Europe": 8, "America": 4}


def test_the_page_s_parcels_have_the_price_of_their_weight(spark):
    scripts = run("Look things up in a table", StreamsBuilder=StreamsBuilder, String=String, Json=Json, F=F)
    with TopologyTestDriver(scripts["priced_parcels"](), spark=spark, partitions=2) as driver:
        rates, parcels = driver.create_input_topic("rates"), driver.create_input_topic("parcels")
        rates.pipe_input("letter", {"least": 0, "most": 499, "price": 1.0})
        rates.pipe_input("parcel", {"least": 500, "most": 9999, "price": 5.5})
        for name, grams in (("a", 20), ("b", 700), ("c", 20_000)):
            parcels.pipe_input(name, {"grams": grams})
        rows = driver.create_output_topic("priced").read_rows()
        assert {row["id"]: row.get("price") for row in rows} == {"a": 1.0, "b": 5.5, "c": None}


def test_the_page_s_dataframe_is_collected_again(spark, tmp_path):
    imports = {"StreamsBuilder": StreamsBuilder, "String": String, "Json": Json, "F": F}
    file = tmp_path / "rates.csv"
    file.write_text("NO,1\n")
    rates = spark.read.schema("country string, rate long").csv(str(file))
    topology = run("Look things up in a DataFrame", **imports)["clicks_with_rates"](rates)
    with TopologyTestDriver(topology, spark=spark) as driver:
        clicks, out = driver.create_input_topic("clicks"), driver.create_output_topic("clicks-with-rates")
        clicks.pipe_input("ada", {"page": "a", "country": "NO"})
        file.write_text("NO,234\n")
        clicks.pipe_input("ada", {"page": "b", "country": "NO"})
        driver.advance_wall_clock_time(dt.timedelta(minutes=10))
        clicks.pipe_input("ada", {"page": "c", "country": "NO"})
        clicks.pipe_input("ada", {"page": "d", "country": "SE"})
        assert [(row["page"], row.get("rate")) for row in out.read_rows()] == [
            *(("a", 1), ("b", 1), ("c", 234), ("d", None)),
        ]


def test_the_page_s_dictionary_is_looked_into(spark):
    imports = {"StreamsBuilder": StreamsBuilder, "String": String, "Json": Json, "F": F}
    topology = run("Look things up in a DataFrame", **imports)["clicks_with_names"]()
    with TopologyTestDriver(topology, spark=spark) as driver:
        clicks, out = driver.create_input_topic("clicks"), driver.create_output_topic("clicks-with-names")
        clicks.pipe_input("ada", {"page": "a", "country": "NO"})
        clicks.pipe_input("ada", {"page": "b", "country": "DK"})
        assert [row.get("name") for row in out.read_rows()] == ["Norway", None]


def test_the_page_s_best_rows_are_kept(spark):
    imports = {"StreamsBuilder": StreamsBuilder, "String": String, "Json": Json, "F": F, "Window": Window}
    topology = run("Keep the best rows of each key", **imports)["highest_bids"]()
    with TopologyTestDriver(topology, spark=spark, batch="all") as driver:
        bids, out = driver.create_input_topic("bids"), driver.create_output_topic("highest-bids")
        for price in (1.0, 4.0, 2.0, 3.0):
            bids.pipe_input("ada", {"auction": 1, "price": price})
        assert [(row["place"], row["price"]) for row in out.read_rows()] == [(1, 4.0), (2, 3.0), (3, 2.0)]


def test_the_page_s_visits_end(spark):
    imports = {"StreamsBuilder": StreamsBuilder, "String": String, "Json": Json, "F": F}
    topology = run("Have sessions: windows that end when nothing comes", **imports)["clicks_per_visit"]()
    with TopologyTestDriver(topology, spark=spark, batch="all") as driver:
        clicks, out = driver.create_input_topic("clicks"), driver.create_output_topic("visits")
        for user, time in (("ada", "00:00"), ("ada", "00:04"), ("bob", "00:05"), ("ada", "00:10"), ("bob", "00:30")):
            clicks.pipe_input(user, {"time": f"2026-01-01T{time}:00Z"})
        assert [row["clicks"] for row in out.read_rows()] == [2, 1, 1]


def test_the_page_s_users_move_from_group_to_group(spark):
    imports = {"StreamsBuilder": StreamsBuilder, "String": String, "Json": Json, "F": F}
    with TopologyTestDriver(run("Group a table", **imports)["users_by_country"](), spark=spark) as driver:
        users, out = driver.create_input_topic("users"), driver.create_output_topic("users-by-country", key=String())
        users.pipe_input("ada", {"country": "UK", "age": 30})
        users.pipe_input("ada", {"country": "NO", "age": 31})
        rows = {record.key: record.value for record in out.read_records()}
        assert rows == {"UK": None, "NO": {"country": "NO", "n": 1, "age": 31.0}}


def test_the_page_s_carts_are_looked_at_when_nobody_has_touched_them(spark):
    imports = {"StreamsBuilder": StreamsBuilder, "String": String, "Json": Json}
    with TopologyTestDriver(run("Keep state of your own", **imports)["left_in_carts"](), spark=spark) as driver:
        carts, out = driver.create_input_topic("carts"), driver.create_output_topic("left-in-carts", key=String())
        for user, item, count, time in (
            ("ada", "tea", 1, "10:00"),
            ("ada", "tea", 2, "10:20"),
            ("bob", "cup", 1, "10:25"),
            ("ada", "pot", 1, "10:40"),
        ):
            carts.pipe_input(user, {"item": item, "pieces": count, "time": f"2026-01-01T{time}:00Z"})
            assert out.is_empty
        carts.pipe_input("cid", {"item": "jar", "pieces": 1, "time": "2026-01-01T10:56:00Z"})
        assert [(record.key, record.value) for record in out.read_records()] == [
            ("bob", {"user": "bob", "item": "cup", "pieces": 1})
        ]
        carts.pipe_input("cid", {"item": "jar", "pieces": 1, "time": "2026-01-01T11:20:00Z"})
        assert sorted(row["pieces"] for row in out.read_rows() if row["user"] == "ada") == [1, 3]


def test_the_page_s_dead_letters_and_headers(spark):
    imports = {"StreamsBuilder": StreamsBuilder, "String": String, "Json": Json, "F": F}
    names = run("Records that cannot be processed", **imports)
    builder = StreamsBuilder()
    names["tenths"](builder)
    with TopologyTestDriver(builder.build(), names["config"], spark=spark) as driver:
        for amount in (5, 0, 2):
            driver.create_input_topic("orders").pipe_input("ada", {"amount": amount})
        assert [row["tenth"] for row in driver.create_output_topic("tenths").read_rows()] == [2, 5]
        [letter] = driver.create_output_topic("orders-dead-letters").read_records()
        assert dict(letter.headers)["__streams.errors.exception"] == b"ZeroDivisionError"
    names = run("Message headers", **imports)
    builder = StreamsBuilder()
    names["traced"](builder)
    names["cloud_events"](builder)
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("orders").pipe_input("ada", {"amount": 5}, headers=[("id", b"7")])
        [record] = driver.create_output_topic("traced").read_records()
        assert record.headers == (("id", b"7"), ("seen-by", b"traced"))
        events = driver.create_input_topic("events")
        for type_ in (b"order.placed", b"order.paid"):
            events.pipe_input(None, {"amount": 5}, headers=[("ce_id", b"1"), ("ce_type", type_)])
        [row] = driver.create_output_topic("placed").read_rows()
        assert row == {"amount": 5, "type": "order.placed"}


def test_the_page_s_orders_are_avro(spark):
    names = run("Read and write Avro", StreamsBuilder=StreamsBuilder, String=String, Avro=Avro, F=F)
    order = {"amount": 2.5, "time": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "items": ["tea"]}
    with TopologyTestDriver(names["order_totals"](), spark=spark) as driver:
        driver.create_input_topic("orders").pipe_rows([("ada", order), ("ada", {**order, "items": []}), ("ada", order)])
        assert driver.create_output_topic("totals").read_rows()[-1] == {"user": "ada", "total": 5.0}
    with SchemaRegistryDouble() as registry:
        registry.register("orders-value", names["ORDER"])
        number = registry.register("totals-value", names["TOTAL"])
        config = names["config"]
        config["schema.registry.url"] = registry.url
        with TopologyTestDriver(names["order_totals_by_registry"](), config, spark=spark) as driver:
            driver.create_input_topic("orders").pipe_input("ada", order)
            assert driver.create_output_topic("totals", value=Raw()).read_rows() == [
                prefix(number) + b"\x06ada\x02" + struct.pack("<d", 2.5)
            ]


def test_the_page_s_keys_are_no_part_of_the_value(spark):
    formats = {"Avro": Avro, "Integer": Integer, "Json": Json, "Long": Long}
    names = run("A key that is no part of the value", StreamsBuilder=StreamsBuilder, F=F, **formats)
    with TopologyTestDriver(names["films_by_length"](), spark=spark) as driver:
        driver.create_input_topic("films").pipe_rows([(7, {"title": "Heat"}), (8, {"title": "Jaws"})])
        copies = driver.create_output_topic("copies").read_records()
        assert [(one.key, one.value) for one in copies] == [
            ((7).to_bytes(8, "big"), {"title": "Heat"}),
            ((8).to_bytes(8, "big"), {"title": "Jaws"}),
        ]
        assert [one.key for one in driver.create_output_topic("films-by-length").read_records()] == [4, 4]
        *_, last = driver.create_output_topic("lengths").read_records()
        assert (last.key, last.value) == ((4).to_bytes(4, "big"), {"count": 2})


def test_the_page_s_visits_find_the_totals_of_payments(spark):
    names = run(
        "Look into a table of groups or of a join", StreamsBuilder=StreamsBuilder, F=F, String=String, Json=Json
    )
    with TopologyTestDriver(names["visits_with_totals"](), spark=spark) as driver:
        payments = driver.create_input_topic("payments")
        for user, amount in (("ada", 80), ("bob", 50), ("ada", 40)):
            payments.pipe_input("id", {"user": user, "amount": amount})
        driver.create_input_topic("visits").pipe_rows([(user, {"page": "home"}) for user in ("ada", "bob", "eve")])
        found = driver.create_output_topic("good-visits").read_rows()
        assert found == [{"user": "ada", "page": "home", "paid": 120.0}]


def test_the_page_s_dear_orders_cost_more_than_the_mean(spark):
    names = run(
        "Look into a table of groups or of a join", StreamsBuilder=StreamsBuilder, F=F, String=String, Json=Json
    )
    with TopologyTestDriver(names["dear_orders"](), spark=spark, partitions=2) as driver:
        items, orders = driver.create_input_topic("items"), driver.create_input_topic("orders")
        for item, price in (("a", 10.0), ("b", 30.0)):
            items.pipe_input(item, {"price": price})
        for number, amount in enumerate((5.0, 25.0, 19.0, 21.0)):
            orders.pipe_input(str(number), {"amount": amount})
        rows = driver.create_output_topic("dear-orders").read_rows()
        assert sorted(row["amount"] for row in rows) == [21.0, 25.0]


def test_the_page_s_orders_have_a_topic_for_each_country(spark):
    names = run("A topic for each row", StreamsBuilder=StreamsBuilder, F=F, Long=Long, Json=Json)
    with TopologyTestDriver(names["orders_by_country"](), spark=spark) as driver:
        driver.create_input_topic("orders").pipe_rows([(1, {"country": "NO"}), (2, {"country": "SE"})])
        assert driver.create_output_topic("orders-no").read_rows() == [{"id": 1, "country": "NO"}]
        assert driver.create_output_topic("orders-at").read_rows() == []


def test_the_page_s_payments_are_tried_again(spark):
    title = "A topic that the pipeline reads, too"
    names = run(title, StreamsBuilder=StreamsBuilder, F=F, String=String, Json=Json)
    with TopologyTestDriver(names["payments_with_retries"](), spark=spark) as driver:
        driver.create_input_topic("payments").pipe_rows([(f"p{n}", {"amount": n * 90.0}) for n in range(1, 5)])
        found = {
            topic: [(row["id"], row["tries"]) for row in driver.create_output_topic(topic).read_rows()]
            for topic in ("accepted", "rejected")
        }
    assert sorted(found["accepted"]) == [("p1", 1), ("p2", 2), ("p3", 3)]
    assert found["rejected"] == [("p4", 3)]


def test_the_page_s_table_has_its_records_times_and_headers(spark):
    title = "Keep the timestamps and headers of a table's records"
    names = run(title, StreamsBuilder=StreamsBuilder, F=F, String=String, Json=Json)
    with TopologyTestDriver(names["dated_prices"](), spark=spark) as driver:
        prices, orders = driver.create_input_topic("prices"), driver.create_input_topic("orders")
        prices.pipe_input("X", {"price": 1.5}, timestamp=1000, headers=[("by", b"desk")])
        orders.pipe_input("1", {"symbol": "X"})
        prices.pipe_input("X", None, timestamp=2000)
        orders.pipe_input("2", {"symbol": "X"})
        found = driver.create_output_topic("priced-orders").read_rows()
    assert found == [
        {"id": "1", "symbol": "X", "price": 1.5, "priced_at": "1970-01-01T00:00:01.000Z", "priced_by": "desk"}
    ]


def test_the_page_s_ticks_name_the_busiest_machines(spark):
    processors = {"StatefulProcessor": StatefulProcessor, "Row": Row}
    names = run("Look at all keys now and then", StreamsBuilder=StreamsBuilder, String=String, Json=Json, **processors)
    with TopologyTestDriver(names["busiest"](), spark=spark) as driver:
        jobs = driver.create_input_topic("jobs")
        for machine, change in (("a", 1), ("b", 5), ("c", 2), ("d", 3), ("b", -4)):
            jobs.pipe_input(machine, {"change": change})
        driver.advance_wall_clock_time(dt.timedelta(minutes=1))
        rows = driver.create_output_topic("busiest").read_rows()
        assert rows == [{"machine": "d", "jobs": 3}, {"machine": "c", "jobs": 2}, {"machine": "b", "jobs": 1}]


# -- limits that pages name ------------------------------------------------------------------------------------------


def test_the_page_s_calm_totals_come_with_each_tick(spark):
    processors = {"StatefulProcessor": StatefulProcessor, "Row": Row}
    given = {"StreamsBuilder": StreamsBuilder, "String": String, "Json": Json, "F": F, **processors}
    names = run("Write each key at most once a minute", **given)
    with TopologyTestDriver(names["calm_totals"](), spark=spark) as driver:
        for user, amount in (("ada", 1.5), ("bob", 2.0), ("ada", 3.0)):
            driver.create_input_topic("orders").pipe_input(user, {"amount": amount})
        out = driver.create_output_topic("calm-totals")
        assert out.read_rows() == []
        driver.advance_wall_clock_time(dt.timedelta(minutes=1))
        ada, bob = {"user": "ada", "orders": 2, "paid": 4.5}, {"user": "bob", "orders": 1, "paid": 2.0}
        assert out.read_rows() == [ada, bob]
        driver.create_input_topic("orders").pipe_input("bob", {"amount": 1.0})
        driver.advance_wall_clock_time(dt.timedelta(minutes=1))
        assert out.read_rows() == [{"user": "bob", "orders": 2, "paid": 3.0}]
        driver.advance_wall_clock_time(dt.timedelta(minutes=1))
        assert out.read_rows() == []


def test_the_page_s_streams_are_aggregated_together(spark):
    names = run("Aggregate several streams together", StreamsBuilder=StreamsBuilder, String=String, Json=Json, F=F)
    with TopologyTestDriver(names["customers"](), spark=spark) as driver:
        driver.create_input_topic("clicks").pipe_input("ada", {"page": "home"})
        driver.create_input_topic("payments").pipe_input("ada", {"amount": 3.0})
        driver.create_input_topic("payments").pipe_input("bob", {"amount": 2.0})
        driver.create_input_topic("payments").pipe_input("ada", {"amount": 1.5})
        rows = {row["user"]: row for row in driver.create_output_topic("customers").read_rows()}
    assert rows["ada"] == {"user": "ada", "clicks": 1, "paid": 4.5, "most": 3.0}
    assert rows["bob"] == {"user": "bob", "clicks": 0, "paid": 2.0, "most": 2.0}


def test_updates_depend_on_where_micro_batches_end_and_the_last_row_does_not(spark):
    builder = StreamsBuilder()
    sums = builder.stream("clicks", key=String("user"), value=Json("n long")).groupBy("user")
    table = sums.agg(F.sum("n").alias("sum"), name="sums")
    table.to("sums", value=Json())
    table.to_stream().groupBy("user").agg(F.count("*").alias("n"), name="changes").to("changes", value=Json())
    for batch, updates in (("record", 3), ("all", 1)):
        with TopologyTestDriver(builder.build(), spark=spark, batch=batch) as driver:
            for n in (1, 2, 3):
                driver.create_input_topic("clicks").pipe_input("ada", {"n": n})
            rows = driver.create_output_topic("sums").read_rows()
            assert (len(rows), rows[-1]["sum"]) == (updates, 6), batch
            assert driver.create_output_topic("changes").read_rows()[-1]["n"] == updates, batch


def test_rows_of_one_micro_batch_make_none_of_them_late(spark):
    builder = StreamsBuilder()
    clicks = builder.stream("clicks", key=String("user"), value=Json("at timestamp")).withWatermark("at", "0 seconds")
    clicks.groupBy("user", F.window("at", "1 minute")).agg(F.count("*").alias("n"), name="n").to("out", value=Json())
    for batch, first in (("record", 1), ("all", 2)):
        with TopologyTestDriver(builder.build(), spark=spark, batch=batch) as driver:
            for minute in (0, 5, 0):
                driver.create_input_topic("clicks").pipe_input("ada", {"at": f"2026-01-01T00:0{minute}:00Z"})
            assert driver.create_output_topic("out").read_rows()[0]["n"] == first, batch


def test_a_join_without_history_finds_what_earlier_micro_batches_brought(spark):
    builder = StreamsBuilder()
    users = builder.table("users", key=String("user"), value=Json("city string"))
    clicks = builder.stream("clicks", key=String("user"), value=Json("n long"))
    clicks.join(users, "user", "left").to("out", value=Json())
    for batch, city in (("record", "Oslo"), ("all", None)):
        with TopologyTestDriver(builder.build(), spark=spark, batch=batch) as driver:
            driver.create_input_topic("users").pipe_input("ada", {"city": "Oslo"}, timestamp=2000)
            driver.create_input_topic("clicks").pipe_input("ada", {"n": 1}, timestamp=1000)
            assert driver.create_output_topic("out").read_rows()[-1].get("city") == city, batch


def test_the_last_of_final_windows_is_not_ranked(spark):
    imports = {"StreamsBuilder": StreamsBuilder, "String": String, "Json": Json, "F": F, "Window": Window}
    topology = run("Rank final windows", **imports)["top_pages"]()
    with TopologyTestDriver(topology, {"watermark.idle.ms": 60_000}, spark=spark) as driver:
        clicks, best = driver.create_input_topic("clicks"), driver.create_output_topic("top-pages")
        for second in (0, 70, 130, 190):
            clicks.pipe_input("a", {"at": f"2026-01-01T00:0{second // 60}:{second % 60:02}Z"})

        def ranked():
            return [row["window"]["start"][14:16] for row in best.read_rows()]

        assert ranked() == ["00", "01"], "the counts of minute 02 are final, and not ranked"
        for found in (["02"], [], [], []):
            driver.advance_wall_clock_time(dt.timedelta(minutes=10))
            assert ranked() == found, "minute 03 is final by now, and nothing closes it in the ranking"


def test_ranked_rows_of_windows_all_come_out_once_nothing_comes(spark):
    imports = {"StreamsBuilder": StreamsBuilder, "String": String, "Json": Json, "F": F, "Window": Window}
    topology = run("Keep the best rows of each key", **imports)["highest_bids_of_windows"]()
    with TopologyTestDriver(topology, {"watermark.idle.ms": 60_000}, spark=spark) as driver:
        bids, best = driver.create_input_topic("bids"), driver.create_output_topic("highest-bids-of-windows")
        bids.pipe_input("ada", {"auction": 1, "price": 2.0, "at": "2026-01-01T00:00:01Z"})
        driver.advance_wall_clock_time(dt.timedelta(minutes=10))
        assert [row["price"] for row in best.read_rows()] == [2.0]


def test_headers_do_not_travel_by_themselves(spark):
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=String("user"), value=Json("n long"))
    orders.to("plain", value=Json())
    orders.withColumn("headers", F.col("kafka.headers")).to("named", value=Json(), headers="headers")
    orders.groupBy("user").count().to("counts", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("orders").pipe_input("ada", {"n": 1}, headers=[("trace", b"7")])
        found = {
            name: driver.create_output_topic(name).read_records()[0].headers for name in ("plain", "named", "counts")
        }
        assert found == {"plain": (), "named": (("trace", b"7"),), "counts": ()}


@pytest.mark.parametrize(
    "table",
    [
        lambda builder: builder.table("users", key=String("user"), value=Json("name string")),
        lambda builder: builder.stream("users", key=String("user"), value=Json("name string")).to_table(),
        lambda builder: builder.stream("users", key=String("user"), value=Json("name string")).groupBy("user").count(),
    ],
    ids=["table", "to_table", "agg"],
)
def test_a_table_has_no_struct_kafka(spark, table):
    rows = table(StreamsBuilder())
    with pytest.raises(TopologyException, match=r"test_how_to.py:\d+: .*`kafka`"):
        rows.where("kafka.offset > 1")


def test_null_fields_are_not_written_unless_the_step_writes_the_text(spark):
    builder = StreamsBuilder()
    notes = builder.stream(
        "notes", key=String("user"), value=Json("note string, s struct<x long, y long>, l array<long>")
    )
    notes.to("json", value=Json())
    text = F.to_json(F.struct("user", "note"), {"ignoreNullFields": "false"})
    notes.select("user", text.alias("value")).to("text", key=String("user"), value=String("value"))
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("notes").pipe_input("ada", {"s": {"x": 1}, "l": [1, None]})
        (written,) = driver.create_output_topic("json", value=Raw()).read_rows()
        assert written == b'{"s":{"x":1},"l":[1,null],"user":"ada"}'
        assert driver.create_output_topic("text", value=Raw()).read_rows() == [b'{"user":"ada","note":null}']


def test_a_topic_is_written_and_read_in_a_chain(spark):
    builder = StreamsBuilder()
    builder.stream("a", key=String("user"), value=Json("n long")).where("n > 0").to("b", value=Json())
    builder.stream("b", key=String("user"), value=Json("n long")).where("n > 1").to("c", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("a").pipe_rows([("u", {"n": n}) for n in range(3)])
        assert [row["n"] for row in driver.create_output_topic("c").read_rows()] == [2]
