"""``from_json`` over records' bytes gives what Spark batch gives, whoever has read them."""

import json
import random

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, Raw, StreamsBuilder, String
from sparkrelay.runtime.worker.parsed_values import ParsedFields
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

SCHEMA = "a int, b long, c double, d string, e boolean, t timestamp, u date, `f.g` short, h byte"
ODD = [
    *(b"", b" ", b"null", b"{}", b"[]", b'[{"a": 1}]', b'{"a": 1', b'{"a": 1} x', b'{"a": 1}{"a": 2}', b"\xff", b'"a"'),
    *(b'{"a": 01}', b'{"a": +1}', b'{"a": 1.0}', b'{"a": "1"}', b'{"a": 2147483648}', b'{"a": -2147483648}'),
    *(b'{"b": 9223372036854775808}', b'{"b": -9223372036854775808}', b'{"b": 1e2}', b'{"b": tru}', b'{"a": -0}'),
    *(b'{"c": 1}', b'{"c": 1e400}', b'{"c": NaN}', b'{"c": "NaN"}', b'{"c": -0.0}', b'{"c": 1.}', b'{"c": 5e-324}'),
    *(b'{"c": 0.1e-6}', b'{"c": 123456789012345678901234567890}', b'{"c": .5}', b'{"c": "x"}', b'{"c": 1E5}'),
    *(
        b'{"d": 1}',
        b'{"d": 1.50}',
        b'{"d": {"x": [1, 2]}}',
        b'{"d": null}',
        b'{"d": ""}',
        b'{"d": "\\u00e9\\n\\ud83d\\ude00"}',
    ),
    *(
        b'{"d": "\\ud800"}',
        b'{"d": "\xc3\xa9"}',
        b'{"d": "\xff"}',
        b'{"d": "a\x01b"}',
        b'{"d": "\\x"}',
        b'{"d": "\\u0000"}',
    ),
    *(b'{"e": true}', b'{"e": "true"}', b'{"e": 1}', b'{"a": 1, "a": 2}', b'{"A": 1}', b'{"\\u0061": 1}', b"{'a': 1}"),
    *(b'{"t": "2024-02-30"}', b'{"t": "2024-02-29"}', b'{"t": "2024-02-29T12:00:00Z"}', b'{"t": "2024"}', b'{"t": 1}'),
    *(b'{"t": "2024-02-29 12:00:00.123456789+01:00"}', b'{"t": "2024-13-01"}', b'{"t": ""}', b'{"t": " 2024-01-01 "}'),
    *(b'{"t": "2024-01-01T00:00:00 Europe/Berlin"}', b'{"t": "+12024-01-01"}', b'{"t": "epoch"}', b'{"t": null}'),
    *(
        b'{"u": "2024-02-29"}',
        b'{"u": "2024-2-9"}',
        b'{"u": "2024-02-29T01"}',
        b'{"u": 5}',
        b'{"u": "x"}',
        b'{"u": ""}',
    ),
    *(
        b'{"f.g": 1, "h": 127}',
        b'{"f.g": 70000}',
        b'{"h": 128}',
        b'{"x": [1, {"y": "}"}], "a": 3}',
        b'{"x": [1,, 2], "a": 3}',
    ),
    *(b'\xef\xbb\xbf{"a": 1}', b'\r\n\t{"a" : 1 , "b":2}\n', b'{"a": 1,}', b'{"a": 1, "x": tru}', b'{"a": 1 /* x */}'),
    b'{"a": 1, "x": ' + b"9" * 1200 + b"}",
    b'{"a": 1, "x": "' + b"9" * 1200 + b'"}',
    b'{"a": 1, "' + b"n" * 60_000 + b'": 1}',
    b'{"a": 1, "x": ' + b"[" * 1100 + b"]" * 1100 + b"}",
]


def documents(seed, count):
    draw = random.Random(seed)
    values = [
        1,
        -7,
        2**31,
        2.5,
        1e300,
        True,
        None,
        "x",
        "é\n",
        "2024-02-29",
        "2024-02-29T12:30:00.5Z",
        [],
        {"k": 1},
        "",
    ]
    for _ in range(count):
        fields = {name: draw.choice(values) for name in draw.sample([*"abcdetuhx", "f.g"], draw.randint(0, 8))}
        text = bytearray(json.dumps(fields, ensure_ascii=draw.random() < 0.5).encode())
        if draw.random() < 0.2 and text:
            text[draw.randrange(len(text))] = draw.choice(b'"{}[]:,\\ 0e.\xff')
        yield bytes(text)


def texts(seed):
    return [*ODD, *documents(seed, 3_000)]


@pytest.fixture
def counted(monkeypatch):
    """How many rows the worker was asked for, in plans that are made from now on."""
    made = []
    real = ParsedFields
    monkeypatch.setattr(
        "sparkrelay.runtime.compile.parsed_values.ParsedFields", lambda *given: made.append(real(*given)) or made[-1]
    )
    return made


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_rows_are_those_of_spark_batch(spark, counted, zone, monkeypatch):
    seed = random.randrange(2**32)
    given = texts(seed)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        parsed = F.from_json(F.col("value").cast("string"), SCHEMA)
        builder = StreamsBuilder(spark)
        stream = (
            builder.stream("in").select("offset", parsed.alias("v")).select("offset", "v.*", F.to_json("v").alias("v"))
        )
        stream.to("out", value=Json())
        with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
            driver.create_input_topic("in").pipe_rows((None, text) for text in given)
            found = {row["offset"]: row for row in driver.create_output_topic("out").read_rows()}
        frame = spark.createDataFrame(enumerate(map(bytearray, given)), "offset long, value binary")
        frame = frame.select("offset", parsed.alias("v")).select(
            F.to_json(F.struct("offset", "v.*", F.to_json("v").alias("v")))
        )
        wanted = {row["offset"]: row for (text,) in frame.collect() for row in [json.loads(text)]}
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert len(counted) >= 1
    assert len(found) == len(given)
    for number, text in enumerate(given):
        # Times are written with another zone.
        assert found[number].get("v") == wanted[number].get("v"), (seed, text[:200])
        assert {k: found[number].get(k) for k in "abcdeh"} == {k: wanted[number].get(k) for k in "abcdeh"}, (
            seed,
            text[:200],
        )


@pytest.mark.parametrize(
    "steps",
    [
        lambda s: (
            s.selectExpr("cast(value as string) AS j").select(F.from_json("j", SCHEMA).alias("v")).where("v.a > 0")
        ),
        lambda s: s.selectExpr("cast(value as string) AS j").select("j", F.from_json("j", SCHEMA).alias("v")),
        lambda s: s.where(F.from_json(F.col("value").cast("string"), SCHEMA).a > 0).select("topic"),
        lambda s: s.select(
            F.from_json(F.col("value").cast("string"), "a int").alias("v"), F.length("value").alias("n")
        ),
        lambda s: s.select(
            F.from_json(F.col("value").cast("string"), "a int").alias("v"),
            F.from_json(F.col("value").cast("string"), "a int, d string").alias("w"),
        ),
    ],
)
def test_it_is_found_wherever_the_texts_come_from(spark, counted, steps):
    builder = StreamsBuilder(spark)
    given = [b'{"a": 1, "d": "x"}', b'{"a": 0}', b'{"a": "1"}', b"x", b'{"a": 5}']
    steps(builder.stream("in")).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        driver.create_input_topic("in").pipe_rows((None, text) for text in given)
        found = [json.dumps(row, sort_keys=True) for row in driver.create_output_topic("out").read_rows()]
    assert counted
    frame = spark.createDataFrame([("in", bytearray(text)) for text in given], "topic string, value binary")
    rows = steps(frame).select(F.to_json(F.struct("*"))).collect()
    assert found == [json.dumps(json.loads(text), sort_keys=True) for (text,) in rows]


@pytest.mark.parametrize("value", [String("j"), Raw("j")])
def test_it_is_found_in_columns_of_formats(spark, counted, value):
    builder = StreamsBuilder(spark)
    text = F.col("j") if isinstance(value, String) else F.col("j").cast("string")
    parsed = F.from_json(text, "a int, t timestamp").alias("v")
    builder.stream("in", value=value).select(parsed).groupBy("v.a").count().to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        driver.create_input_topic("in").pipe_rows(
            (None, text) for text in ("""{"a": 1}""", "x", """{"a": 1, "t": "2024"}""")
        )
        found = {row.get("a"): row["count"] for row in driver.create_output_topic("out").read_rows()}
    assert counted
    # What is no JSON has no group.
    assert found == {1: 2}


@pytest.mark.parametrize(
    "parsed",
    [
        lambda text: F.from_json(text, "a int", {"mode": "FAILFAST"}),
        lambda text: F.from_json(text, "a int, _corrupt_record string"),
        lambda text: F.from_json(text, "a int, b array<int>"),
        lambda text: F.from_json(text, "array<int>"),
        lambda text: F.from_json(F.concat(text, F.lit("")), "a int"),
    ],
)
def test_spark_reads_what_the_worker_does_not_know(spark, counted, parsed):
    builder = StreamsBuilder(spark)
    builder.stream("in").select(parsed(F.col("value").cast("string")).alias("v")).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("in").pipe_input(None, b'{"a": 1}')
        assert len(driver.create_output_topic("out").read_rows()) == 1
    assert not counted
