"""What only Spark can tell of columns: their types, names, stars and seeds."""

import json

import pytest
from pyspark.sql import functions as F

from sparkrelay import Integer, Json, Long, Raw, StreamsBuilder, String
from sparkrelay.errors import TopologyException

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def values_of(consumed, topic):
    return [json.loads(value) for _, _, _, value in consumed(topic)]


def test_plain_formats_write_columns_of_their_own_type(instance, make_topic, produce, consumed, wait_until):
    source, words, numbers = (make_topic(hint, 1) for hint in ("in", "words", "numbers"))
    produce(source, [("7", {"n": 12})])
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("k"), value=Json("n int"))
    texts = stream.select("n", F.col("n").cast("string").alias("text"), F.col("n").cast("bigint").alias("long"))
    texts.to(words, key=String("text"), value=Long("long"))
    texts.withColumn("bytes", F.encode("text", "UTF-8")).to(numbers, key=Integer("n"), value=Raw("bytes"))
    streams = instance(builder)
    streams.start()
    wait_until(lambda: (consumed(words) and consumed(numbers)) or streams.exception(), "nothing came")
    assert streams.exception() is None
    ((_, _, *word),), ((_, _, *number),) = consumed(words), consumed(numbers)
    assert word == [b"12", (12).to_bytes(8, "big")]
    assert number == [(12).to_bytes(4, "big"), b"12"]


@pytest.mark.parametrize(
    ("formats", "words"),
    [
        ({"key": String("n")}, r"column 'n' \(int\) as key=String\(\"n\"\), which takes string; .*cast\(\"string\"\)"),
        (
            {"value": Long("n")},
            r"column 'n' \(int\) as value=Long\(\"n\"\), which takes bigint; .*value=Integer\(\"n\"\)",
        ),
        ({"value": Raw("n")}, r"column 'n' \(int\) as value=Raw\(\"n\"\), which takes binary"),
    ],
)
def test_a_column_of_another_type_than_its_format_is_refused(instance, formats, words):
    builder = StreamsBuilder()
    builder.stream("a", key=String("k"), value=Json("n int")).to("b", **formats)
    with pytest.raises(TopologyException, match=rf"test_columns.py:\d+: to\('b'\) writes {words}"):
        instance(builder)
