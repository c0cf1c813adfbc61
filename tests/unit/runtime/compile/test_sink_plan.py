"""What of a leg's last rows becomes key and value, and what is refused."""

import pytest
from pyspark.sql import types as t
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparkrelay.errors import TopologyException
from sparkrelay.records.formats import Arrow, Boolean, Double, Integer, Json, Long, Raw, String
from sparkrelay.runtime.compile.sink_plan import plan_sink
from sparkrelay.topology import StreamsBuilder
from sparkrelay.topology.schemas import KAFKA_FIELDS, check_packable

pytestmark = pytest.mark.usefixtures("spark")

TYPES = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "binary": BinaryType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "timestamp": TimestampType(),
    "struct<a:int>": StructType([StructField("a", IntegerType())]),
}
FORMATS = {
    "string": String("c"), "int": Integer("c"), "bigint": Long("c"), "binary": Raw("c"), "double": Double("c"),
    "boolean": Boolean("c"),
}  # fmt: skip


def fields(**columns):
    return [StructField(name, TYPES.get(kind, kind)) for name, kind in columns.items()]


def plan_of(columns, *, raw=False, **formats):
    builder = StreamsBuilder()
    stream = builder.stream("in") if raw else builder.stream("in", key=String("k"))
    stream.to("out", **formats)
    ((leg,),) = (subtopology.legs for subtopology in builder.build().subtopologies)
    return plan_sink(leg, leg.sink, StructType(columns))


@pytest.mark.parametrize("place", ["key", "value"])
@pytest.mark.parametrize("given", TYPES)
@pytest.mark.parametrize("wanted", FORMATS)
def test_a_format_writes_columns_of_its_type_only(place, given, wanted):
    columns = fields(k="string", c=given)
    if given == wanted:
        plan = plan_of(columns, **{place: FORMATS[wanted]})
        assert (plan.key, plan.format) == ((("c",), Json()) if place == "key" else ((), FORMATS[wanted]))
        return
    with pytest.raises(TopologyException) as caught:
        plan_of(columns, **{place: FORMATS[wanted]})
    message = str(caught.value)
    name = type(FORMATS[wanted]).__name__
    assert message.startswith("test_sink_plan.py:")
    assert f"to('out') writes column 'c' ({given}) as {place}={name}(\"c\"), which takes {wanted}" in message
    assert f'withColumn("c", F.col("c").cast("{wanted}"))' in message
    as_it_is = FORMATS.get(given)
    assert ("or write it as it is" in message) == (as_it_is is not None)
    if as_it_is is not None:
        assert message.endswith(f'{place}={type(as_it_is).__name__}("c")')


def test_a_column_that_is_not_there_is_named():
    with pytest.raises(TopologyException, match=r"writes column 'd', but the columns are k, c"):
        plan_of(fields(k="string", c="int"), key=String("d"))


def test_a_key_that_was_dropped_is_answered_with_how_the_value_goes_without_it():
    with pytest.raises(TopologyException, match=r"the columns are k, d; rows need the column of their key, and the"):
        plan_of(fields(k="string", d="string"), key=String("e"))


def test_text_of_any_collation_is_text():
    assert plan_of(fields(c=StringType("UTF8_LCASE")), key=String("c")).key == ("c",)


def test_the_value_of_a_stream_without_formats_may_be_remade_as_text():
    assert plan_of(KAFKA_FIELDS, raw=True).format == Raw()
    assert plan_of(fields(key="binary", value="string"), raw=True).format == String()
    with pytest.raises(TopologyException, match=r"column 'value' \(int\) as value=Raw\(\), which takes binary"):
        plan_of(fields(key="binary", value="int"), raw=True)


def test_a_column_that_is_there_twice_is_refused():
    with pytest.raises(TopologyException, match=r"to\('out'\) writes two columns 'c'; .*alias\(\)"):
        plan_of([*fields(c="int"), *fields(k="string", c="int")])


def test_a_repartition_topic_carries_a_column_called_value_whatever_it_is():
    builder = StreamsBuilder()
    builder.stream("in").repartition("value").to("out")
    first, _ = (subtopology.legs[0] for subtopology in builder.build().subtopologies)
    assert plan_sink(first, first.sink, StructType(fields(key="binary", value="int"))).key == ("value",)


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        (t.VariantType(), r'F.to_json\("c"\)'),
        (t.GeometryType(4326), r'F.st_asbinary\("c"\)'),
        (t.GeographyType(4326), r'F.st_asbinary\("c"\)'),
        (t.ArrayType(t.VariantType()), r'F.to_json\("c"\)'),
        (t.DayTimeIntervalType(), r'F.col\("c"\).cast\("string"\)'),
        (t.YearMonthIntervalType(), r'F.col\("c"\).cast\("string"\)'),
        (t.CalendarIntervalType(), r'F.col\("c"\).cast\("string"\)'),
        (t.TimeType(), r'F.col\("c"\).cast\("string"\)'),
        (t.StructType([StructField("inner", t.TimeType())]), r'F.to_json\("c"\)'),
        (t.MapType(t.StructType([StructField("a", IntegerType())]), IntegerType()), r'F.to_json\("c"\)'),
    ],
)
def test_json_does_not_hold_such_a_column(kind, remedy):
    with pytest.raises(TopologyException, match=rf"'c' \(.*\), which Json\(\) cannot hold: .*{remedy}\), or drop"):
        plan_of(fields(k="string", c=kind))


def test_what_no_row_has_a_value_of_is_sent_on_as_text():
    with pytest.raises(TopologyException, match=r"cannot go through .*withColumn\(\"c\", F.col\(\"c\"\).cast"):
        check_packable(StructType(fields(c=t.NullType())), "here")


def test_arrow_does_not_hold_a_variant():
    """A reader would find a struct of bytes there."""
    with pytest.raises(TopologyException, match=r"'c' \(variant\), which Arrow\(\) cannot hold: .*F.to_json\(\"c\"\)"):
        plan_of(fields(k="string", c=t.VariantType()), value=Arrow())
    assert plan_of(fields(k="string", c=t.TimeType()), value=Arrow()).columns.names == ["k", "c"]


@pytest.mark.parametrize(
    "kind",
    [
        t.ByteType(), t.NullType(), t.DateType(), t.TimestampNTZType(), t.DecimalType(10, 2),
        t.MapType(IntegerType(), IntegerType()), t.ArrayType(t.StructType([StructField("b", BinaryType())])),
    ],
)  # fmt: skip
def test_json_holds_the_others(kind):
    assert plan_of(fields(k="string", c=kind)).columns.names == ["k", "c"]
