import json

import pyarrow as pa
import pytest

from sparkrelay.errors import SerializationException
from sparkrelay.records.formats import JsonSchema
from sparkrelay.records.formatted import columns_to_format, format_to_columns
from sparkrelay.records.framing import prefix
from sparkrelay.records.json.schema import json_schema_columns


def schema(**more):
    return json.dumps({"type": "object", **more})


def test_properties_are_columns():
    text = schema(
        properties={
            "id": {"type": "integer"},
            "amount": {"type": ["number", "null"]},
            "ok": {"type": "boolean"},
            "at": {"type": "string", "format": "date-time"},
            "day": {"oneOf": [{"type": "null"}, {"type": "string", "format": "date"}]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "place": {"$ref": "#/definitions/a~1b"},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "raw": {"type": "string", "contentEncoding": "base64"},
            "either": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
            "anything": True,
            "word": {"enum": ["a", "b"]},
        },
        definitions={"a/b": {"type": "object", "properties": {"x": {"type": "number"}}}},
    )
    assert json_schema_columns(text) == pa.schema(
        [
            ("id", pa.int64()), ("amount", pa.float64()), ("ok", pa.bool_()), ("at", pa.timestamp("us", "UTC")),
            ("day", pa.date32()), ("tags", pa.list_(pa.string())), ("place", pa.struct([("x", pa.float64())])),
            ("counts", pa.map_(pa.string(), pa.int64())), ("raw", pa.binary()), ("either", pa.string()),
            ("anything", pa.string()), ("word", pa.string()),
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not JSON"),
        ("[]", "is not an object"),
        ('{"type": "string"}', "not that of an object with properties"),
        (schema(properties={"a": {"$ref": "other.json"}}), "refers to 'other.json' at 'a'"),
        (schema(properties={"a": {"$ref": "#/nowhere"}}), "has no '#/nowhere'"),
        (schema(properties={"a": {"$ref": "#/properties/a"}}), "refers to itself at 'a'"),
        (schema(properties={"a": {"$ref": "#"}}), "deeper than 32 levels, or in itself"),
    ],
)
def test_what_gives_no_columns_is_refused(text, reason):
    with pytest.raises(SerializationException, match=reason):
        json_schema_columns(text)


FORM = JsonSchema(
    schema(properties={"id": {"type": "integer"}, "note": {"type": "string"}}, required=["id"]), schema_id=7
)
WANTED = pa.schema([("id", pa.int64()), ("note", pa.string())])


def test_records_are_read_behind_five_bytes():
    values = [prefix(7) + b'{"id": 1}', prefix(9) + b'{"id": 2, "note": "x", "more": 1}', None, b'{"id": 3}',
              prefix(7) + b'{"id": "x"}', b""]  # fmt: skip
    columns, bad = format_to_columns(pa.array(values), FORM, "value", WANTED)
    assert columns["id"].to_pylist() == [1, 2, None, None, None, None]
    assert columns["note"].to_pylist() == [None, "x", None, None, None, None]
    assert [one.index for one in bad] == [3, 4, 5]
    assert "does not begin with the number of a schema" in bad[0].reason


def test_records_are_written_behind_five_bytes():
    rows = pa.RecordBatch.from_pydict({"id": [1, 2], "note": ["x", None]})
    assert columns_to_format(rows, FORM).to_pylist() == [prefix(7) + b'{"id":1,"note":"x"}', prefix(7) + b'{"id":2}']


@pytest.mark.parametrize(
    ("rows", "more", "reason"),
    [
        ({"note": ["x"]}, {}, "requires 'id'"),
        (
            {"id": [1], "b": [2]},
            {"additionalProperties": False},
            "has no property 'b', but id, note, and takes no others",
        ),
        ({"id": ["x"]}, {}, "column 'id' is string, and the JSON Schema has int64 there"),
        ({"id": [1], "note": [5]}, {}, "column 'note' is int64, and the JSON Schema has string there"),
        ({"id": [1], "note": [[5]]}, {}, "column 'note' is list<.*, and the JSON Schema has string there"),
    ],
)
def test_columns_that_do_not_go_together_are_refused(rows, more, reason):
    form = JsonSchema(json.loads(FORM.schema) | more, schema_id=7)
    with pytest.raises(SerializationException, match=reason):
        columns_to_format(pa.RecordBatch.from_pydict(rows), form)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="JsonSchema\\(...\\): the JSON Schema is not that of an object"):
        JsonSchema('{"type": "string"}')
    with pytest.raises(ValueError, match="give one of them"):
        JsonSchema(FORM.schema, version=2)


def test_a_property_of_several_types_takes_any_column_and_a_string_what_is_written_as_text():
    form = JsonSchema(
        schema(properties={"any": {"type": ["string", "integer"]}, "note": {"type": ["null", "string"]}}), schema_id=7
    )
    day = pa.array([0], pa.date32())
    for any_, note in ((pa.array([5]), day), (pa.array(["x"]), pa.array([b"x"])), (day, pa.array(["x"]))):
        rows = pa.RecordBatch.from_arrays([any_, note], ["any", "note"])
        assert len(columns_to_format(rows, form)) == 1
