import base64
import json

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from sparkrelay.errors import SerializationException
from sparkrelay.records.avro.arrow_types import arrow_schema_of
from sparkrelay.records.avro.schema import parse_schema
from sparkrelay.records.formats import Protobuf
from sparkrelay.records.formatted import declared_schema
from sparkrelay.records.json.schema import json_schema_columns
from sparkrelay.records.schema_references import whole_schema

MONEY = {
    "type": "record", "name": "Money", "namespace": "shop",
    "fields": [
        {"name": "amount", "type": "long"},
        {"name": "currency", "type": {"type": "enum", "name": "Currency", "symbols": ["EUR"]}},
    ],
}  # fmt: skip
ITEM = {
    "type": "record", "name": "shop.Item",
    "fields": [{"name": "sku", "type": "string"}, {"name": "price", "type": "Money"}],
}  # fmt: skip


def avro(schema, **referred):
    made = whole_schema("AVRO", json.dumps(schema), {name: json.dumps(its) for name, its in referred.items()})
    return arrow_schema_of(parse_schema(made), "value")


MONEY_TYPE = pa.struct([("amount", pa.int64()), ("currency", pa.string())])


def test_avro_types_stand_where_they_are_first_named():
    order = {
        "type": "record", "name": "Order", "namespace": "other",
        "fields": [
            {"name": "currency", "type": ["null", "shop.Currency"]},
            {"name": "items", "type": {"type": "array", "items": "shop.Item"}},
            {"name": "totals", "type": {"type": "map", "values": "shop.Money"}},
            {"name": "parent", "type": "string"},
        ],
    }  # fmt: skip
    schema = avro(order, **{"shop.Money": MONEY, "shop.Item": ITEM})
    assert schema.field("currency").type == pa.string()
    assert schema.field("items").type.value_type == pa.struct([("sku", pa.string()), ("price", MONEY_TYPE)])
    assert schema.field("totals").type.item_type == MONEY_TYPE
    assert schema.field("parent").type == pa.string()


def test_avro_names_without_a_namespace_stay_in_none():
    plain = {"type": "fixed", "name": "Id", "size": 4}
    order = {"type": "record", "name": "Order", "namespace": "n", "fields": [{"name": "id", "type": "Id"}]}
    made = json.loads(whole_schema("AVRO", json.dumps(order), {"Id": json.dumps(plain)}))
    assert made["fields"][0]["type"] == plain | {"namespace": ""}
    assert avro(order, Id=plain).field("id").type == pa.binary()


def test_avro_that_names_what_nobody_declares_is_refused():
    with pytest.raises(SerializationException, match="nowhere"):
        avro(
            {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "nowhere"}]}, **{"shop.Money": MONEY}
        )


def test_json_schemas_are_put_into_definitions():
    money = {"definitions": {"n": {"type": "integer"}}, "properties": {"amount": {"$ref": "#/definitions/n"}}}
    item = {"$id": "http://shop/item", "type": "object", "properties": {"price": {"$ref": "money.json"}, "up": {}}}
    order = {
        "type": "object",
        "properties": {
            "item": {"$ref": "http://shop/item"},
            "n": {"$ref": "money.json#/definitions/n"},
            "own": {"$ref": "#/$defs/own"},
        },
        "$defs": {"own": {"type": "boolean"}},
    }
    money["type"] = "object"
    referred = {"money.json": json.dumps(money), "a/item~": json.dumps(item)}
    schema = json_schema_columns(whole_schema("JSON", json.dumps(order), referred))
    price = pa.struct([("amount", pa.int64())])
    assert schema.field("item").type == pa.struct([("price", price), ("up", pa.string())])
    assert schema.field("n").type == pa.int64()
    assert schema.field("own").type == pa.bool_()


def serialized(name, *, imports=()):
    file = descriptor_pb2.FileDescriptorProto(name="default", package="shop", syntax="proto3", dependency=imports)
    message = file.message_type.add(name=name)
    if imports:
        message.field.add(name="money", number=1, type=11, label=1, type_name=".shop.Money")
    else:
        message.field.add(name="amount", number=1, type=3, label=1)
    return base64.b64encode(file.SerializeToString()).decode()


def test_protobuf_files_get_the_names_by_which_they_are_imported():
    text = whole_schema(
        "PROTOBUF", serialized("Order", imports=["shop/money.proto"]), {"shop/money.proto": serialized("Money")}
    )
    form = Protobuf(text)
    assert form.message == "shop.Order"
    assert declared_schema(form, "value").field("money").type == pa.struct([("amount", pa.int64())])


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_what_cannot_be_read_is_named(kind):
    with pytest.raises(SerializationException, match="schema"):
        whole_schema(kind, "{", {"a": "}"})


def test_what_grows_without_end_is_refused():
    deep = {"type": "string"}
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    with pytest.raises(SerializationException, match="deeper than 64 levels"):
        avro({"type": "record", "name": "R", "fields": [{"name": "a", "type": deep}]}, Money=MONEY)
