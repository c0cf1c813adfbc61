"""Global tables in the test driver: any stream finds any row, whatever partition it is in.

With what Kafka's ``KStreamGlobalKTableJoinTest`` feeds in and expects.
"""

import random

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, Long, StreamsBuilder, String
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

ORDERS = "user string, country string, amount bigint"


def _pipeline(how):
    builder = StreamsBuilder()
    countries = builder.global_table("countries", key=String("country"), value=Json("continent string"), name="geo")
    orders = builder.stream("orders", key=String("user"), value=Json("country string, amount bigint"))
    orders.join(countries, "country", how).to("located", value=Json())
    return builder


@pytest.fixture(params=["record", "all"])
def driver(request, spark):
    with TopologyTestDriver(_pipeline("left").build(), spark=spark, partitions=3, batch=request.param) as driver:
        yield driver


def _located(driver):
    return driver.create_output_topic("located").read_rows()


def test_streams_find_the_rows_of_every_partition(driver):
    countries, orders = driver.create_input_topic("countries"), driver.create_input_topic("orders")
    for country, continent in {"fr": "Europe", "jp": "Asia", "ke": "Africa", "pe": "America"}.items():
        countries.pipe_input(country, {"continent": continent})
    for number, country in enumerate(["jp", "pe", "fr", "ke", "xx", None]):
        orders.pipe_input(f"user {number}", {"country": country, "amount": number})
    found = {row["amount"]: row.get("continent") for row in _located(driver)}
    assert found == {0: "Asia", 1: "America", 2: "Europe", 3: "Africa", 4: None, 5: None}
    assert [row["country"] for row in driver.store("geo")] == ["fr", "jp", "ke", "pe"]


def test_changes_and_deletions_are_followed(driver):
    countries, orders = driver.create_input_topic("countries"), driver.create_input_topic("orders")
    located, found = driver.create_output_topic("located"), []
    for value in ({"continent": "Europe"}, {"continent": "Eurasia"}, None, {"continent": "Asia"}):
        countries.pipe_input("tr", value)
        driver.process()
        orders.pipe_input("ada", {"country": "tr", "amount": 1})
        found += [row.get("continent") for row in located.read_rows()]
    assert found == ["Europe", "Eurasia", None, "Asia"]


@pytest.mark.parametrize("from_changelog", [False, True])
def test_copies_outlast_a_restart(driver, from_changelog):
    countries, orders = driver.create_input_topic("countries"), driver.create_input_topic("orders")
    countries.pipe_input("fr", {"continent": "Europe"})
    driver.restart(from_changelog=from_changelog)
    countries.pipe_input("jp", {"continent": "Asia"})
    driver.process()
    orders.pipe_input("ada", {"country": "fr", "amount": 1})
    orders.pipe_input("ada", {"country": "jp", "amount": 2})
    assert [row["continent"] for row in _located(driver)] == ["Europe", "Asia"]


def test_inner_joins_leave_rows_out(spark):
    with TopologyTestDriver(_pipeline("inner").build(), spark=spark) as driver:
        driver.create_input_topic("countries").pipe_input("fr", {"continent": "Europe"})
        orders = driver.create_input_topic("orders")
        for country in ("fr", "xx", None, "fr"):
            orders.pipe_input("ada", {"country": country, "amount": 1})
        rows = _located(driver)
    assert [row["country"] for row in rows] == ["fr", "fr"]


def test_a_row_without_a_key_is_asked_what_stands_behind_the_join(spark):
    builder = StreamsBuilder()
    countries = builder.global_table("countries", key=String("country"), value=Json("continent string"))
    orders = builder.stream("orders", key=String("user"), value=Json("country string, amount bigint"))
    located = orders.join(countries, "country", "left").where("country is not null or amount > 1")
    located.select("user", "continent").to("located", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("orders")
        for user, country, amount in (("ada", "fr", 0), ("bob", None, 2), ("cid", None, 1)):
            topic.pipe_input(user, {"country": country, "amount": amount})
        assert [row["user"] for row in _located(driver)] == ["ada", "bob"]


def test_any_expression_is_a_key_and_groupings_go_on_from_there(spark):
    builder = StreamsBuilder()
    zones = builder.global_table("zones", key=Long("zone"), value=Json("name string"))
    trips = builder.stream("trips", key=String("cab"), value=Json("lon double, fare bigint"))
    zoned = trips.withColumn("zone", F.floor(F.col("lon") / 10)).join(zones, "zone")
    zoned.groupBy("cab").agg(F.sum("fare").alias("fares"), F.max("name").alias("name")).to("fares", value=Json())
    zoned.groupBy("name").count().to("by-name", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, partitions=2) as driver:
        names = driver.create_input_topic("zones")
        for number, name in enumerate(["west", "mid", "east"]):
            names.pipe_input(number, {"name": name})
        trips_in = driver.create_input_topic("trips")
        for cab, lon, fare in [("a", 5.0, 1), ("a", 15.0, 2), ("b", 25.0, 3), ("a", 95.0, 4)]:
            trips_in.pipe_input(cab, {"lon": lon, "fare": fare})
        fares = {row["cab"]: row for row in driver.create_output_topic("fares").read_rows()}
        counts = {row["name"]: row["count"] for row in driver.create_output_topic("by-name").read_rows()}
    assert {cab: row["fares"] for cab, row in fares.items()} == {"a": 3, "b": 3}
    assert counts == {"west": 1, "mid": 1, "east": 1}


#: Name -> a statement in which every parcel meets every rate.
BY_CONDITION = {
    "inner": "SELECT id, rate, price FROM parcels JOIN rates ON grams BETWEEN least AND most",
    "left": "SELECT p.id, r.rate, r.price, r.least FROM parcels p LEFT JOIN rates r ON grams BETWEEN least AND most",
    "right": "SELECT p.id, r.rate FROM rates r RIGHT JOIN parcels p ON p.grams < r.least AND r.price > 2",
    "another column": "SELECT id, rate, grams - price AS rest FROM parcels JOIN rates ON kind = sort",
    "of one side": "SELECT id, rate FROM parcels LEFT JOIN rates ON grams > 50 AND price > 2",
    "computed": "SELECT id, concat(rate, '!') AS r FROM parcels JOIN rates ON grams % 10 = cast(price AS int) % 10",
    "cross": "SELECT id, rate FROM parcels CROSS JOIN rates",
    "semi": "SELECT id, grams FROM parcels WHERE EXISTS (SELECT 1 FROM rates WHERE price > grams / 50)",
    "anti": "SELECT id, grams FROM parcels LEFT ANTI JOIN rates ON grams BETWEEN least AND most",
    "or": "SELECT id FROM parcels WHERE grams < 20 OR EXISTS (SELECT 1 FROM rates WHERE sort = kind AND price > 3)",
    "behind": "SELECT id, rate FROM parcels JOIN (SELECT rate, least * 2 AS low FROM rates WHERE price < 4) "
    "ON grams > low",
    "grouped": "SELECT id, count(rate) AS n FROM parcels LEFT JOIN rates ON grams BETWEEN least AND most GROUP BY id",
}


def _parcels_and_rates(seed):
    chosen = random.Random(seed)
    rates = []
    for name in "abcdefg":
        least = chosen.randint(0, 90)
        bounds = {"least": least, "most": least + chosen.randint(0, 40)}
        rates.append((name, {**bounds, "price": chosen.choice([1.0, 2.5, 4.5]), "sort": chosen.choice("xyz")}))
    parcels = [
        (f"p{n}", {"grams": chosen.choice([None, chosen.randint(0, 120)]), "kind": chosen.choice(["x", "y", None])})
        for n in range(40)
    ]
    # A text is empty too, and a rate without bounds matches nothing.
    return [*rates, ("", {"price": 3.5, "sort": "y"})], parcels


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
def test_any_condition_finds_what_spark_batch_finds(spark, seed):
    rates, parcels = _parcels_and_rates(seed)
    columns = {"parcels": "grams int, kind string", "rates": "least int, most int, price double, sort string"}
    builder = StreamsBuilder(spark)
    builder.stream("parcels", key=String("id"), value=Json(columns["parcels"]))
    builder.global_table("rates", key=String("rate"), value=Json(columns["rates"]))
    for name, text in BY_CONDITION.items():
        builder.sql(text).to(name.replace(" ", "-"), value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, partitions=2, batch="all") as driver:
        driver.create_input_topic("rates").pipe_rows(rates)
        driver.process()
        driver.create_input_topic("parcels").pipe_rows(parcels)
        driver.process()
        found = {name: driver.create_output_topic(name.replace(" ", "-")).read_rows() for name in BY_CONDITION}
    for name, key, rows in (("rates", "rate", rates), ("parcels", "id", parcels)):
        records = [{**value, key: text} for text, value in rows]
        spark.createDataFrame(records, f"{key} string, {columns[name]}").createOrReplaceTempView(name)
    for name, text in BY_CONDITION.items():
        wanted = [{k: v for k, v in row.asDict().items() if v is not None} for row in spark.sql(text).collect()]
        assert sorted(map(repr, map(_sorted, found[name]))) == sorted(map(repr, map(_sorted, wanted))), name


def _sorted(row):
    return sorted(row.items())


def test_the_columns_of_a_global_table_are_there_for_conditions(spark):
    builder = StreamsBuilder(spark)
    rates = builder.global_table("rates", key=String("rate"), value=Json("least int, most int"))
    parcels = builder.stream("parcels", key=String("id"), value=Json("grams int"))
    priced = parcels.join(rates, parcels.grams.between(rates.least, rates["most"]), "left")
    priced.select("id", "rate").to("priced", value=Json())
    parcels.crossJoin(rates).select("id", "rate").to("crossed", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        parcels = driver.create_input_topic("parcels")
        parcels.pipe_input("early", {"grams": 5})
        driver.process()
        driver.create_input_topic("rates").pipe_rows([("s", {"least": 0, "most": 9}), ("m", {"least": 9, "most": 99})])
        driver.process()
        parcels.pipe_input("late", {"grams": 9})
        priced = [(row["id"], row.get("rate")) for row in driver.create_output_topic("priced").read_rows()]
        crossed = [(row["id"], row["rate"]) for row in driver.create_output_topic("crossed").read_rows()]
    assert (priced[0], sorted(priced[1:])) == (("early", None), [("late", "m"), ("late", "s")])
    assert sorted(crossed) == [("late", "m"), ("late", "s")]


def test_random_rows_find_what_spark_finds(spark):
    countries = [(f"c{number % 40}", f"continent {number}") for number in range(100)]
    orders = [(f"user {number % 7}", f"c{number * 7 % 60}", number) for number in range(200)]
    with TopologyTestDriver(_pipeline("left").build(), spark=spark, partitions=2, batch="all") as driver:
        table, stream = driver.create_input_topic("countries"), driver.create_input_topic("orders")
        for country, continent in countries:
            table.pipe_input(country, {"continent": continent})
        driver.process()
        for user, country, amount in orders:
            stream.pipe_input(user, {"country": country, "amount": amount})
        found = {(row["amount"], row.get("continent")) for row in _located(driver)}
    newest = spark.createDataFrame(list(dict(countries).items()), "country string, continent string")
    expected = spark.createDataFrame(orders, ORDERS).join(newest, "country", "left")
    assert found == {(row["amount"], row["continent"]) for row in expected.collect()}


class Joined:
    """What KStreamGlobalKTableJoinTest sets up: rows that carry a foreign key, and a global table of those."""

    def __init__(self, spark):
        builder = StreamsBuilder()
        table = builder.global_table("table", key=String("fk"), value=String("y"))
        stream = builder.stream("stream", key=Long("k"), value=Json("x string, fk string"))
        stream.join(table, "fk").select(F.concat("x", F.lit("+"), "y").alias("both")).to("out", value=String("both"))
        self.driver = TopologyTestDriver(builder.build(), spark=spark)
        self._stream, self._table = map(self.driver.create_input_topic, ("stream", "table"))
        self._out = self.driver.create_output_topic("out", key=Long())

    def push_to_stream(self, count, prefix, *, foreign=True):
        for key in range(count):
            self._stream.pipe_input(key, {"x": f"{prefix}{key}", "fk": f"FKey{key}" if foreign else None})
        return self.taken()

    def push_to_table(self, count, prefix):
        for key in range(count):
            self._table.pipe_input(f"FKey{key}", None if prefix is None else f"{prefix}{key}")
        return self.taken()

    def taken(self):
        return [(record.key, record.value) for record in self._out.read_records()]


@pytest.fixture
def joined(spark):
    both = Joined(spark)
    yield both
    both.driver.close()


def found(count, left, right):
    return [(key, f"{left}{key}+{right}{key}") for key in range(count)]


def test_updates_of_the_table_alone_make_nothing(joined):
    """shouldNotJoinWithEmptyGlobalTableOnStreamUpdates, shouldNotJoinOnGlobalTableUpdates"""
    assert joined.push_to_stream(2, "X") == []
    assert joined.push_to_table(2, "Y") == []
    assert joined.push_to_stream(4, "X") == found(2, "X", "Y")
    assert joined.push_to_table(4, "YY") == []
    assert joined.push_to_stream(4, "X") == found(4, "X", "YY")
    assert joined.push_to_table(4, "YYY") == []


def test_a_row_without_a_value_clears_the_table(joined):
    """shouldClearGlobalTableEntryOnNullValueUpdates, shouldNotJoinOnNullKeyMapperValues"""
    assert joined.push_to_table(4, "Y") == []
    assert joined.push_to_stream(4, "X") == found(4, "X", "Y")
    assert joined.push_to_table(2, None) == []
    assert joined.push_to_stream(4, "XX") == found(4, "XX", "Y")[2:]
    assert joined.push_to_stream(4, "XXX", foreign=False) == []
