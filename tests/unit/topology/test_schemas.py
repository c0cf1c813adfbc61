"""Types of columns, as far as no session is needed for them."""

import pytest
from pyspark.sql import types as t

from sparkrelay.errors import TopologyException
from sparkrelay.records.formats import Json
from sparkrelay.topology.schemas import (
    aggregate_spec,
    check_groupable,
    check_packable,
    check_repartition_key,
    format_fields,
    layout_number,
)


@pytest.mark.parametrize(
    "kind",
    [
        t.VariantType(),
        t.CharType(3),
        t.VarcharType(3),
        t.DayTimeIntervalType(),
        t.YearMonthIntervalType(),
        t.TimeType(6),
        t.MapType(t.IntegerType(), t.StringType()),
    ],
)
def test_json_is_not_read_to_such_a_type(kind):
    for inside in (kind, t.ArrayType(kind), t.StructType([t.StructField("inner", kind)])):
        schema = t.StructType([t.StructField("n", t.IntegerType()), t.StructField("x", inside)])
        with pytest.raises(TopologyException, match=r"here: Json\(\) with field 'x' .*declare it as a string"):
            format_fields(Json(schema), "value", "here")


def test_json_is_read_to_the_other_types():
    named_like_a_type = t.StructType([t.StructField("variant", t.IntegerType())])
    kinds = [
        named_like_a_type,
        t.BinaryType(),
        t.DecimalType(38, 10),
        t.TimestampNTZType(),
        t.MapType(t.StringType(), t.FloatType()),
    ]
    schema = t.StructType([t.StructField(f"x{number}", kind) for number, kind in enumerate(kinds)])
    assert format_fields(Json(schema), "value", "here") == list(schema)


CASELESS = t.StructField("c", t.StringType("UTF8_LCASE"))


@pytest.mark.parametrize("kind", [CASELESS.dataType, t.StructType([t.StructField("a", t.StringType()), CASELESS])])
def test_groups_are_not_made_by_a_collation(kind):
    """A group is found by its bytes; Spark would put "a" and "A" of this column into one."""
    keys = t.StructType([t.StructField("n", t.IntegerType()), t.StructField("g", kind)])
    with pytest.raises(TopologyException, match=r"grouping column 'g' .*UTF8_LCASE.*F\.collate\(F\.lower\("):
        check_groupable(keys, "here")


@pytest.mark.parametrize("function", ["min", "max"])
def test_extremes_are_not_taken_by_a_collation(function):
    with pytest.raises(TopologyException, match=rf"a {function} of string collate UTF8_LCASE.*F\.collate\("):
        aggregate_spec(function, [CASELESS], t.StructField("a", CASELESS.dataType), "here")


def test_texts_of_a_collation_are_counted():
    assert aggregate_spec("count", [CASELESS], t.StructField("a", t.LongType()), "here").column == "c"


@pytest.mark.parametrize("kind", [t.StructType([t.StructField("a", t.LongType())]), t.ArrayType(t.LongType())])
@pytest.mark.parametrize("function", ["min", "max"])
def test_extremes_of_nested_values_are_not_supported_yet(function, kind):
    column = t.StructField("last", kind)
    with pytest.raises(TopologyException, match=rf"^here: last is a {function} of .*, which is not supported yet: .*"):
        aggregate_spec(function, [column], column, "here")


def test_errors_of_an_aggregate_name_the_column_of_the_result():
    argument, result = t.StructField("_argument_0", t.LongType()), t.StructField("total", t.LongType())
    assert str(aggregate_spec("sum", [argument], result, "here")) == "total (sum)"


def row(kind):
    return t.StructType([t.StructField("n", t.IntegerType()), t.StructField("x", kind)])


def nested(levels):
    kind = t.IntegerType()
    for level in range(levels):
        kind = t.ArrayType(kind) if level % 2 else t.MapType(t.StringType(), kind)
    return kind


NESTED = [
    t.ArrayType(t.StringType()),
    t.MapType(t.IntegerType(), t.StructType([t.StructField("a", t.ArrayType(t.DoubleType()))])),
    t.ArrayType(t.DecimalType(20, 4)),
    nested(16),
]


@pytest.mark.parametrize("kind", NESTED)
def test_rows_may_have_arrays_and_maps_and_keys_may_not(kind):
    check_packable(row(kind), "here")
    with pytest.raises(
        TopologyException, match=r"^here: column 'x' .* cannot be the key of a repartition .*F\.to_json\("
    ):
        check_repartition_key(row(kind), "here")
    with pytest.raises(TopologyException, match=r"^here: grouping column 'x' .*F\.to_json\("):
        check_groupable(row(kind), "here")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (nested(17), "nested deeper than 16 levels"),
        (t.ArrayType(t.DayTimeIntervalType()), "of type duration"),
        (t.YearMonthIntervalType(), r"not supported.*F.col\(\"x\"\).cast\(\"string\"\)"),
        (t.VariantType(), r"a struct of bytes.*F.to_json\(\"x\"\)"),
        (t.GeometryType(4326), r"a struct of bytes.*F.st_asbinary\(\"x\"\)"),
    ],
)
def test_what_rows_cannot_have_is_refused_with_its_reason(kind, reason):
    with pytest.raises(TopologyException, match=rf"^here: column 'x' .* cannot be kept in a table: .*{reason}"):
        check_packable(row(kind), "here", "be kept in a table")


def test_layouts_of_nested_types_have_numbers_of_their_own():
    inner = [
        *NESTED,
        t.ArrayType(t.LongType()),
        t.ArrayType(t.DecimalType(20, 3)),
        t.ArrayType(t.StructType([t.StructField("a", t.LongType())])),
        t.ArrayType(t.StructType([t.StructField("b", t.LongType())])),
        t.ArrayType(t.TimestampType()),
        t.ArrayType(t.TimestampNTZType()),
        t.MapType(t.StringType(), t.LongType()),
        t.MapType(t.LongType(), t.StringType()),
        t.StructType([t.StructField(f"f{i}", t.LongType()) for i in range(60)]),
        t.StructType([t.StructField(f"f{i}", t.LongType() if i < 59 else t.StringType()) for i in range(60)]),
    ]
    assert len({layout_number(row(kind)) for kind in inner}) == len(inner)
