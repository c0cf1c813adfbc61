"""Every aggregate function gives what Spark's batch gives of the same rows, however they come in micro-batches."""

import math
import random

import pytest
from pyspark.sql import functions as F
from tests.marks import marked

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

VALUE = "i int, big long, d double, m decimal(10,2), s string, on boolean, at timestamp, p struct<a:int,b:string>"

ONE_ARGUMENT = [
    *(f"{name}({column})" for name in ("stddev", "stddev_pop", "var_samp", "var_pop", "skewness", "kurtosis")
      for column in ("i", "d", "m")),
    *(f"{name}({column})" for name in ("count", "min", "max", "sum", "avg") for column in ("i", "d", "m")),
    *(f"{name}({column})" for name in ("bit_and", "bit_or", "bit_xor") for column in ("i", "big")),
    *(f"{name}(on)" for name in ("bool_and", "bool_or", "every", "some")),
    *("any(i > 3)", "std(i)", "variance(d)", "mean(m)", "sum(CAST(i AS string))", "count(i, s)", "count(NULL)"),
    *("avg(CAST(m AS decimal(8,0)))", "sum(CAST(m AS decimal(38,4)))", "avg(CAST(i AS decimal(38,18)))"),
]  # fmt: skip
TWO_ARGUMENTS = [
    f"{name}({columns})"
    for name in ("corr", "covar_pop", "covar_samp", "regr_count", "regr_avgx", "regr_avgy", "regr_sxx", "regr_syy",
                 "regr_sxy", "regr_slope", "regr_intercept", "regr_r2")
    for columns in ("d, i", "m, big")
]  # fmt: skip
PICKED = [
    *(f"{name}({column})" for name in ("first", "last", "any_value", "first_value", "last_value")
      for column in ("i", "s", "m", "at", "p")),
    *(f"{name}({column}) IGNORE NULLS" for name in ("first", "last", "any_value") for column in ("i", "s", "p", "on")),
    *(f"{name}({column}, {by})" for name in ("max_by", "min_by") for column in ("s", "p", "m") for by in ("big", "at")),
]  # fmt: skip
FILTERED = [
    "count(*) FILTER (WHERE i > 2)",
    "count(s) FILTER (WHERE on)",
    "count(i, s) FILTER (WHERE on)",
    "count_if(i > 1) FILTER (WHERE on)",
    "sum(m) FILTER (WHERE i > 2)",
    "avg(d) FILTER (WHERE s IS NOT NULL)",
    "max(s) FILTER (WHERE NOT on)",
    "stddev(d) FILTER (WHERE on)",
    "corr(d, i) FILTER (WHERE on)",
    "regr_count(d, i) FILTER (WHERE on)",
    "regr_avgx(d, i) FILTER (WHERE on)",
    "first(s) FILTER (WHERE on)",
    "first(s, true) FILTER (WHERE on)",
    "last(i) FILTER (WHERE on)",
    "max_by(s, big) FILTER (WHERE on)",
    "bit_or(i) FILTER (WHERE on)",
    "bool_and(i > 0) FILTER (WHERE s IS NOT NULL)",
]
DISTINCT = [
    *(f"count(DISTINCT {column})" for column in ("i", "d", "m", "s", "on", "at", "p", "big")),
    *("count(DISTINCT i, s)", "count(DISTINCT s, on) FILTER (WHERE i > 0)", "count(*)", "max(DISTINCT i)"),
    *("sum(DISTINCT i)", "avg(DISTINCT m)", "sum(DISTINCT m) FILTER (WHERE on)", "stddev(DISTINCT i)"),
    *("count(DISTINCT d % 2)", "min(s)", "count(DISTINCT 1)"),
]
COLLECTED = [
    *(f"collect_list({column})" for column in ("i", "d", "m", "s", "on", "at", "p", "array(i, i)")),
    *(f"collect_set({column})" for column in ("i", "d", "m", "s", "on", "at", "p")),
    *("array_agg(i) FILTER (WHERE on)", "collect_list(DISTINCT s)"),
    *("listagg(s, ',')", "string_agg(s)", "listagg(s, '-') WITHIN GROUP (ORDER BY s)", "listagg(i, ' ')"),
    *("listagg(DISTINCT s, '+') WITHIN GROUP (ORDER BY s DESC)", "listagg(s, ',') FILTER (WHERE on)"),
    *("listagg(CAST(s AS binary))", "mode(i % 100 = 0)"),
    *(f"mode({column}, true)" for column in ("i", "d", "m", "s", "on", "at")),
    *("mode() WITHIN GROUP (ORDER BY i DESC)", "mode() WITHIN GROUP (ORDER BY s)", "mode(i, true) FILTER (WHERE on)"),
]
PERCENTILES = [
    *(f"median({column})" for column in ("i", "d", "m", "big", "s IS NULL OR on")[:4]),
    *(f"percentile({column}, array(0.0, 0.1, 0.25, 0.5, 0.99, 1.0))" for column in ("i", "d", "m")),
    *("percentile(i, 0.3)", "percentile(i, 0.3, abs(i))", "percentile(DISTINCT i, 0.3)", "percentile(d, 0.7, 3)"),
    *("percentile_cont(0.4) WITHIN GROUP (ORDER BY i DESC)", "percentile_cont(0.4) WITHIN GROUP (ORDER BY d)"),
    *("percentile_disc(0.4) WITHIN GROUP (ORDER BY i DESC)", "percentile_disc(0.4) WITHIN GROUP (ORDER BY d)"),
    *(f"approx_percentile({column}, array(0.0, 0.1, 0.25, 0.5, 0.99, 1.0))" for column in ("i", "d", "m", "at")),
    *("percentile_approx(i, 0.3, 1000)", "median(d) FILTER (WHERE on)", "percentile(i, array())"),
    *("median(if(i > 3, double('NaN'), d))", "median(if(i > 3, double('inf'), d))"),
]
#: What Spark's batch cannot plan beside other aggregates, or changes the order of lists for -> the same in other words.
SAME = {
    "collect_list(DISTINCT s)": "collect_set(s)",
    "listagg(DISTINCT s, '+') WITHIN GROUP (ORDER BY s DESC)":
        "if(size(collect_set(s)) = 0, NULL, array_join(sort_array(collect_set(s), false), '+'))",
}  # fmt: skip
GROUPS = {
    "collected": COLLECTED,
    "percentiles": PERCENTILES,
    "distinct": DISTINCT,
    "one": ONE_ARGUMENT,
    "two": TWO_ARGUMENTS,
    "picked": PICKED,
    "filtered": FILTERED,
}


def made_up(seed, count=70):
    """Return rows with many nulls; ``big`` and ``at`` are never twice the same: of equals Spark takes any."""
    random_ = random.Random(seed)

    def maybe(value):
        return None if random_.random() < 0.25 else value

    rows = []
    for number in random_.sample(range(1000), count):
        user = random_.choice(["ada", "bob", "cy", "dan"]) if number % 10 else f"once {number}"
        rows.append((user, {
            "i": maybe(random_.randrange(-4, 9)),
            "big": maybe(number * 1_000_003 - (1 << 40)),
            "d": maybe(round(random_.gauss(3, 10), 2)),
            "m": maybe(round(random_.uniform(-1e5, 1e5), 2)),
            "s": maybe(random_.choice(["", "a", "ab", "ü", "z"])),
            "on": maybe(random_.random() < 0.7),
            "at": maybe(f"2026-01-01T{number % 24:02}:{number // 24:02}:00Z"),
            "p": maybe({"a": maybe(number), "b": maybe("x")}),
        }))  # fmt: skip
    return rows


def batch_of(spark, rows):
    """Return the rows as a DataFrame of one partition, read as the stream reads them."""
    import json

    text = spark.createDataFrame([(user, json.dumps(row)) for user, row in rows], "user string, text string")
    parsed = text.coalesce(1).select("user", F.from_json("text", VALUE).alias("v"))
    return parsed.select("user", "v.*")


def same(found, wanted):
    if found == wanted and type(found) is type(wanted):
        return True
    if isinstance(wanted, float) and isinstance(found, float):
        return math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9) or (math.isnan(found) and math.isnan(wanted))
    if isinstance(wanted, list) and isinstance(found, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return False


#: Not sums, whose last bits are of the order of their parts.
EXACT = ("median", "percentile", "approx_percentile")


def exactly(found, wanted):
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(exactly, found, wanted))
    return found == wanted or repr(found) == repr(wanted)


def assert_rows(found, expected):
    found, expected = in_no_order(found), in_no_order(expected)
    assert set(found) == set(expected)
    for key, row in expected.items():
        wrong = {
            name: (found[key][name], value)
            for name, value in row.items()
            if not (exactly if name.startswith(EXACT) else same)(found[key][name], value)
        }
        assert not wrong, key


def plain(row):
    return {name: plain_value(value) for name, value in row.items()}


def in_no_order(rows):
    """Return rows whose sets are sorted, in whatever way."""
    return {
        key: {
            name: sorted(value, key=repr) if name.startswith(("collect_set", "collect_list(DISTINCT")) else value
            for name, value in row.items()
        }
        for key, row in rows.items()
    }


def plain_value(value):
    if isinstance(value, list):
        return [plain_value(one) for one in value]
    if isinstance(value, bytearray):
        return bytes(value)
    return plain(value.asDict()) if hasattr(value, "asDict") else value


def with_zone(rows):
    """Return rows with their times in UTC, as a store's rows have them."""
    import datetime as dt

    def zoned(value):
        if isinstance(value, list):
            return [zoned(one) for one in value]
        return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value

    return {key: {name: zoned(value) for name, value in row.items()} for key, row in rows.items()}


def piped(driver, rows, seed):
    """Pipe rows in, in micro-batches cut at random, with restarts between."""
    random_ = random.Random(seed)
    topic = driver.create_input_topic("in")
    rest = list(rows)
    while rest:
        size = random_.randrange(1, 30)
        topic.pipe_rows(rest[:size])
        driver.process()
        del rest[:size]
        if random_.random() < 0.4:
            driver.restart(from_changelog=random_.random() < 0.6)


@pytest.mark.long
@pytest.mark.parametrize("group", marked(GROUPS, {"picked"}))
def test_the_rows_are_those_of_spark_batch(spark, group):
    aggregates = [F.expr(text).alias(text) for text in GROUPS[group]]
    in_batch = [F.expr(SAME.get(text, text)).alias(text) for text in GROUPS[group]]
    products = [F.product(column).alias(f"product({column})") for column in ("i", "d", "m")]
    rows = made_up(sum(map(ord, group)))
    expected = batch_of(spark, rows).groupBy("user").agg(*in_batch, *products).collect()
    expected = with_zone({row["user"]: plain(row.asDict()) for row in expected})
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("user"), value=Json(VALUE))
    stream.groupBy("user").agg(*aggregates, *products, name="kept").to("out")
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        piped(driver, rows, group)
        assert_rows(with_zone({row["user"]: row for row in driver.store("kept")}), expected)


WINDOWED = [
    *("count(DISTINCT s)", "count(DISTINCT i, on)", "sum(DISTINCT i)", "count(*)", "last(s)", "max_by(s, big)"),
    *("stddev(d)", "avg(m)", "corr(d, i)", "first(p) IGNORE NULLS"),
]
#: Beside them, Spark's batch takes rows in another order.
WINDOWED_VALUES = [
    *("collect_set(s)", "mode(i, true)", "median(d)", "percentile(i, array(0.1, 0.7))", "approx_percentile(at, 0.5)"),
    *("collect_set(p)", "collect_list(i)", "listagg(s, ', ')", "count(*)", "sum(i)", "array_agg(p)"),
]


@pytest.mark.parametrize("texts", [WINDOWED, WINDOWED_VALUES], ids=["states", "values"])
@pytest.mark.parametrize("append", [False, True], ids=["update", "append"])
@pytest.mark.parametrize("window", [("4 hours",), ("4 hours", "2 hours")], ids=["tumbling", "sliding"])
def test_the_rows_of_windows_are_those_of_spark_batch(spark, window, append, texts):
    """The last row of all ends every window but its own, which stays open."""
    aggregates = [F.expr(text).alias(text) for text in texts]
    rows = [(user, {**row, "at": row["at"] or "2026-01-01T02:00:00Z"}) for user, row in made_up(7)]
    rows.append(("end", {**rows[0][1], "at": "2026-01-09T00:00:00Z"}))
    keys = (F.window("at", *window), "user")
    expected = batch_of(spark, rows).groupBy(*keys).agg(*aggregates).collect()
    expected = {(row["window"]["end"].timestamp(), row["user"]): plain(row.asDict()) for row in expected}
    if append:
        expected = {key: row for key, row in expected.items() if key[1] != "end"}
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("user"), value=Json(VALUE)).withWatermark("at", "2 days")
    table = stream.groupBy(*keys).agg(*aggregates, name="kept")
    (table.outputMode("append") if append else table).to("out")
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        piped(driver, rows[:-1], "windows")
        kept = {(row["window"]["end"].timestamp(), row["user"]): row for row in driver.store("kept")}
        before = {key: row for key, row in expected.items() if key[1] != "end"}
        assert_rows(with_zone(without_window(kept)), with_zone(without_window(before)))
        topic = driver.create_input_topic("in")
        topic.pipe_rows(rows[-1:])
        driver.process()
        found = {}
        for row in driver.create_output_topic("out").read_rows():
            key = (row["window"]["end"], row["user"])
            assert not append or key not in found
            found[key] = row
        assert len(found) == len(expected)
        names = [name for name in texts if name.startswith(("count", "collect_list", "median", "percentile", "list"))]
        counts = sorted(str([user, *map(row.get, names)]) for (_, user), row in found.items())
        wanted = sorted(str([user, *map(row.get, names)]) for (_, user), row in expected.items())
        assert counts == wanted
        topic.pipe_rows(rows[-1:])
        driver.process()
        assert {row["user"] for row in driver.store("kept")} == {"end"}


def without_window(rows):
    return {key: {name: value for name, value in row.items() if name != "window"} for key, row in rows.items()}


def test_what_is_not_kept_is_refused_with_its_line(spark):
    for name in ("histogram_numeric", "hll_sketch_agg"):
        groups = StreamsBuilder(spark).stream("in", key=String("user"), value=Json(VALUE)).groupBy("user")
        with pytest.raises(
            TopologyException, match=rf"test_aggregate_functions.py.*{name}\(i.*\) is not supported in agg"
        ):
            groups.agg(F.expr(f"{name}(i{', 5' if name == 'histogram_numeric' else ''})"))


def test_try_sum_and_try_avg_are_null_while_they_are_out_of_range(spark):
    most = (1 << 63) - 1
    digits = "9" * 28
    rows = [{"n": most, "d": digits}, {"n": most, "d": digits}, {"n": -most, "d": digits}, {"n": None, "d": None}]
    tried = [
        F.expr(f"{name}({column})").alias(f"{name}_{column}") for name in ("try_sum", "try_avg") for column in "nde"
    ]
    builder = StreamsBuilder()
    source = builder.stream("in", key=String("user"), value=Json("n bigint, d decimal(28,0)"))
    source.withColumn("e", F.col("n").cast("double")).groupBy("user").agg(*tried).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        topic, out = driver.create_input_topic("in"), driver.create_output_topic("out")
        topic.pipe_rows([("a", row) for row in rows[:2]])
        (first,) = out.read_rows()
        topic.pipe_rows([("a", row) for row in rows[2:]])
        (second,) = out.read_rows()
    assert first.get("try_sum_n") is None
    assert int(second["try_sum_n"]) == most
    assert (int(first["try_sum_d"]), int(second["try_sum_d"])) == (2 * int(digits), 3 * int(digits))
    assert (first["try_avg_n"], first["try_avg_e"]) == (float(most), float(most))
    assert float(second["try_avg_d"]) == float(digits)
    assert (first["try_sum_e"], second["try_sum_e"]) == (2.0 * most, 1.0 * most)
