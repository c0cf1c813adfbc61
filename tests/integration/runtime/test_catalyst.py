"""What is read out of plans in a few calls, against what Catalyst says one by one."""

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from sparkrelay.runtime.compile.catalyst import (
    Attribute,
    analyzed,
    attributes,
    named,
    null_column,
    numbered,
    optimized,
    select_names,
    select_texts,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

NAMES = ["a", "A b", "a.b", "x#7L", 'say "no"', "it's", "`", "\n", "#1\na", "ü", "a, b", "null", "*"]


@pytest.fixture
def odd(spark):
    """A row of columns with odd names, every second one of longs."""
    columns = [F.lit(at).cast("bigint" if at % 2 else "string").alias(name) for at, name in enumerate(NAMES)]
    return spark.range(1).select(*columns)


def one_by_one(sequence):
    listed = [sequence.apply(index) for index in range(sequence.size())]
    return [Attribute(one.exprId().id(), one.name()) for one in listed]


def test_attributes(odd):
    output = odd._jdf.queryExecution().analyzed().output()
    assert attributes(output) == attributes(output, NAMES) == analyzed(odd).output == one_by_one(output)
    assert numbered(output.mkString("\n"), NAMES) is not None, "they are read at once"


def test_attributes_with_a_watermark(spark):
    rows = spark.readStream.format("rate").load().withWatermark("timestamp", "5 seconds")
    output = rows._jdf.queryExecution().analyzed().output()
    assert "-T5000ms" in output.mkString("\n")
    assert numbered(output.mkString("\n"), rows.columns) == analyzed(rows).output == one_by_one(output)


def test_columns_by_their_names(odd):
    wanted = list(reversed(NAMES))
    assert select_names(odd, wanted).columns == wanted
    assert select_names(odd, wanted).first() == odd.select(*named(wanted)).first()
    assert [row.asDict() for row in select_names(odd, ["a.b"]).collect()] == [{"a.b": "2"}]
    assert select_names(odd, []).columns == []


def test_texts_are_those_of_select(odd):
    texts = ["a", "`a.b`", "*"]
    assert select_texts(odd, texts).schema == odd.select(*texts).schema


def test_nulls(spark):
    rows = spark.range(1).select(null_column(LongType(), "n"), null_column(LongType(), "m"))
    assert rows.schema.simpleString() == "struct<n:bigint,m:bigint>"
    assert rows.first() == (None, None)


def test_what_is_computed_and_what_is_as_it_was(odd):
    rows = odd.select("a", F.col("a").alias("b"), F.upper("a").alias("c"))
    node = analyzed(rows)
    numbers = {name: number for number, name in node.output}
    assert node.aliases.keys() == {numbers["b"], numbers["c"]}
    assert [one.children[0].kind for one in node.aliases.values()] == ["AttributeReference", "Upper"]
    assert node.aliases[numbers["b"]].references == [Attribute(numbers["a"], "a")]
    assert list(node.expressions) == list(node.aliases.values())
    assert [one.kind for one in node.below()] == ["Project", "Project", "Range"]
    assert analyzed(rows) is node
    assert optimized(rows).output == node.output
