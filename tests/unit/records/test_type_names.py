"""Types as Spark's JSON says them: as PySpark writes and reads it, and nothing else."""

import json

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from sparkrelay.records.type_names import fields_json, fields_of, type_json, type_of

ROW = t.StructType(
    [t.StructField("x", t.IntegerType(), False), t.StructField("y", t.MapType(t.StringType(), t.DoubleType()))]
)
TYPES = [
    t.BooleanType(),
    t.ByteType(),
    t.ShortType(),
    t.IntegerType(),
    t.LongType(),
    t.FloatType(),
    t.DoubleType(),
    t.StringType(),
    t.BinaryType(),
    t.DateType(),
    t.TimestampType(),
    t.TimestampNTZType(),
    t.DayTimeIntervalType(),
    t.DecimalType(38, 10),
    t.ArrayType(ROW),
    t.ArrayType(t.LongType(), containsNull=False),
    ROW,
]


def test_types_are_said_as_spark_says_them():
    schema = t.StructType([t.StructField(f"c{index}", kind) for index, kind in enumerate(TYPES)])
    arrow = to_arrow_schema(schema, timezone="UTC")
    said = {"type": "struct", "fields": fields_json(arrow)}
    assert t.StructType.fromJson(said) == schema
    assert fields_of(json.loads(schema.json())["fields"]) == list(arrow)
    assert type_of(type_json(arrow.field("c14").type)) == arrow.field("c14").type


@pytest.mark.parametrize(
    "said",
    [
        "text",
        "decimal(99,1)",
        {"type": "udt", "pyClass": "os.system"},
        {"type": "struct"},
        {"kind": "array"},
        None,
        7,
        {"type": "array", "elementType": "int", "containsNull": True},
    ],
)
def test_what_is_no_type_is_refused(said):
    with pytest.raises((ValueError, TypeError, LookupError)):
        type_of(said)


def test_what_spark_does_not_have_has_no_name():
    with pytest.raises(ValueError, match="no name for uint8"):
        type_json(pa.uint8())
