"""Avro by the schemas of a registry: read, evolved, written; what the registry does not have."""

import datetime as dt
import json

import pytest
from google.protobuf import descriptor_pb2
from pyspark.sql import functions as F
from tests.doubles.schema_registry import SchemaRegistryDouble
from tests.registry_server import running_registry
from tests.unit.records.avro.random_schemas import written
from tests.unit.records.test_protobuf import FILES, ORDER, ROW

from sparkrelay import Avro, Json, JsonSchema, Protobuf, Raw, StreamsBuilder, String
from sparkrelay.errors import ConfigException, SerializationException, TopologyException
from sparkrelay.records.framing import prefix
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration


def order(*fields):
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": list(fields)}


ID = {"name": "id", "type": "int"}
LONG_ID = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
SHOP = {"name": "shop", "type": "string", "default": "web"}
FIRST, SECOND, THIRD = order(ID), order(NOTE, LONG_ID), order(LONG_ID, NOTE, SHOP)


@pytest.fixture(scope="module")
def server():
    with running_registry() as found:
        yield found


@pytest.fixture(params=["double", pytest.param("Apicurio", marks=pytest.mark.long)])
def registry(request):
    if request.param == "double":
        with SchemaRegistryDouble(user="ada:secret") as double:
            yield double
    else:
        server = request.getfixturevalue("server")
        server.clear()
        yield server


def settings(registry, **more):
    return {"schema.registry.url": registry.url, "basic.auth.user.info": "ada:secret", **more}


def value(number, schema, row):
    return prefix(number) + written(schema, row)


def test_records_of_all_versions_are_read_by_the_newest_and_written_framed(spark, registry):
    first, second = registry.register("orders-value", FIRST), registry.register("orders-value", SECOND)
    registry.register("out-value", THIRD)
    builder = StreamsBuilder(config=settings(registry))
    orders = builder.stream("orders", key=String("user"), value=Avro())
    orders.drop("user").to("out", value=Avro())
    orders.groupBy("user").agg(F.max("id").alias("newest"), name="newest").to("newest")
    with TopologyTestDriver(builder.build(), settings(registry), spark=spark) as driver:
        source = driver.create_input_topic("orders")
        source.pipe_input("a", value(first, FIRST, {"id": 1}))
        source.pipe_input("a", value(second, SECOND, {"note": "x", "id": 2**40}))
        source.pipe_input("a", {"note": "y", "id": 3})
        # A producer registers a third version while the pipeline runs, and a fourth one under another subject.
        third = registry.register("orders-value", THIRD)
        source.pipe_input("a", value(third, THIRD, {"id": 4, "note": None, "shop": "s"}))
        other = registry.register("elsewhere", order(ID, NOTE))
        source.pipe_rows([("a", value(other, order(ID, NOTE), {"id": 5, "note": "z"})), ("a", None)])
        rows = driver.create_output_topic("out").read_rows()
        assert rows == [
            {"id": 1, "note": None, "shop": "web"},
            {"id": 2**40, "note": "x", "shop": "web"},
            {"id": 3, "note": "y", "shop": "web"},
            {"id": 4, "note": None, "shop": "web"},
            {"id": 5, "note": "z", "shop": "web"},
            None,
        ]
        assert driver.store("newest") == [{"user": "a", "newest": 2**40}]


def test_what_is_written_has_the_number_of_its_schema(spark, registry):
    registry.register("orders-value", FIRST)
    number = registry.register("out-value", SECOND)
    builder = StreamsBuilder(config=settings(registry))
    builder.stream("orders", value=Avro()).to("out", value=Avro(SECOND, framed=True))
    with TopologyTestDriver(builder.build(), settings(registry), spark=spark) as driver:
        driver.create_input_topic("orders").pipe_input(None, {"id": 7})
        assert driver.create_output_topic("out", value=Raw()).read_rows() == [
            value(number, SECOND, {"note": None, "id": 7})
        ]


def test_damage_and_unknown_numbers_are_bad_records(spark, registry):
    number = registry.register("orders-value", FIRST)
    unlike = registry.register("elsewhere", order({"name": "id", "type": "string"}))
    builder = StreamsBuilder(config=settings(registry))
    builder.stream("orders", value=Avro()).to("out")
    bad = [b"", b"\0\0", b"\x01" + value(number, FIRST, {"id": 1})[1:], value(999, FIRST, {"id": 1}),
           value(unlike, order({"name": "id", "type": "string"}), {"id": "x"}), prefix(number)]  # fmt: skip
    topology = builder.build()
    skipping = settings(registry, **{"deserialization.exception.handler": "log-and-continue"})
    with TopologyTestDriver(topology, skipping, spark=spark, batch="all") as driver:
        source = driver.create_input_topic("orders")
        good = value(number, FIRST, {"id": 8})
        source.pipe_rows([(None, data) for one in bad for data in (good, one)])
        assert driver.create_output_topic("out").read_rows() == [{"id": 8}] * len(bad)
    reasons = ["number of a schema"] * 3 + ["did not have schema 999", "field 'id' was written as string", "'id'"]
    for data, reason in zip(bad, reasons, strict=True):
        with TopologyTestDriver(topology, settings(registry), spark=spark, batch="all") as driver:
            driver.create_input_topic("orders").pipe_input(None, data)
            with pytest.raises(SerializationException, match=f"orders-0 at offset 0 does not decode: .*{reason}"):
                driver.process()


def test_what_the_registry_lacks_is_said_where_it_is_needed(spark, registry):
    builder = StreamsBuilder(config=settings(registry))
    with pytest.raises(
        TopologyException, match=r"test_schema_registry.py:\d+: the registry has no subject 'orders-value'"
    ):
        builder.stream("orders", value=Avro())
    with pytest.raises(ConfigException, match=r"schema.registry.url is not set; .*StreamsBuilder\(config=config\)"):
        StreamsBuilder().stream("orders", value=Avro())
    registry.register("orders-value", FIRST)
    builder = StreamsBuilder(config=settings(registry))
    builder.stream("orders", value=Avro()).to("out")
    with pytest.raises(ConfigException, match="schema.registry.url is not set"):
        TopologyTestDriver(builder.build(), spark=spark)
    builder = StreamsBuilder(config=settings(registry))
    builder.stream("orders", value=Avro()).to("out", value=Avro(SECOND, framed=True))
    topology = builder.build()
    with pytest.raises(TopologyException, match="does not have this schema under subject 'out-value'"):
        TopologyTestDriver(topology, settings(registry), spark=spark)
    TopologyTestDriver(topology, settings(registry, **{"auto.register.schemas": True}), spark=spark).close()
    assert json.loads(registry.schemas[registry.subjects["out-value"][0]]["schema"]) == SECOND


def test_json_behind_the_number_of_its_schema(spark, registry):
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "at": {"oneOf": [{"type": "null"}, {"type": "string", "format": "date-time"}]},
        },
        "required": ["id"],
        "additionalProperties": False,
    }
    registry.register("orders-value", schema, "JSON")
    number = registry.register("out-value", {**schema, "title": "Copy"}, "JSON")
    builder = StreamsBuilder(config=settings(registry))
    orders = builder.stream("orders", value=JsonSchema())
    orders.where("year(at) = 2026").to("out", value=JsonSchema())
    topology = builder.build()
    with TopologyTestDriver(topology, settings(registry), spark=spark) as driver:
        source = driver.create_input_topic("orders")
        source.pipe_rows([(None, {"id": 1, "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}), (None, {"id": 2})])
        assert driver.create_output_topic("out", value=Raw()).read_rows() == [
            prefix(number) + b'{"id":1,"at":"2026-01-01T00:00:00.000Z"}'
        ]
    registry.register("others-value", FIRST)
    builder = StreamsBuilder(config=settings(registry))
    with pytest.raises(TopologyException, match="has a schema of kind AVRO, not JSON"):
        builder.stream("others", value=JsonSchema())


def test_protobuf_behind_the_number_of_its_schema_and_its_place(spark, registry):
    descriptors = FILES.SerializeToString()
    registry.register("orders-value", Protobuf(descriptors, "shop.Order").registered_text, "PROTOBUF")
    builder = StreamsBuilder(config=settings(registry))
    orders = builder.stream("orders", value=Protobuf())
    orders.select("id", F.col("items")[0]["sku"].alias("user")).to("out", value=Protobuf(ORDER, framed=True))
    orders.select("id", "color").to("plain", value=Protobuf(descriptors, "shop.Order"))
    topology = builder.build()
    config = settings(registry, **{"auto.register.schemas": True})
    with TopologyTestDriver(topology, config, spark=spark) as driver:
        source = driver.create_input_topic("orders")
        source.pipe_rows([(None, {**ROW, "counts": {"k": 5}})])
        (number,) = registry.subjects["out-value"]
        expected = ORDER(id=-1, user="a").SerializeToString()
        assert driver.create_output_topic("out", value=Raw()).read_rows() == [prefix(number) + b"\0" + expected]
        (row,) = driver.create_output_topic("plain").read_rows()
        assert (row["id"], row["color"]) == (-1, "BLUE")


def test_schemas_that_refer_to_others(spark, registry):
    registry.register("item", order({"name": "sku", "type": "string"}) | {"name": "Item"})
    orders = order(ID, {"name": "item", "type": "shop.Item"})
    number = registry.register("orders-value", orders, references=[("shop.Item", "item", 1)])
    whole = order(ID, {"name": "item", "type": order({"name": "sku", "type": "string"}) | {"name": "Item"}})
    definitions = {"$id": "money.json", "type": "object", "properties": {"pence": {"type": "integer"}}}
    registry.register("money", definitions, "JSON")
    prices = {
        "title": "Price",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "price": {"$ref": "money.json"}},
    }
    priced = registry.register("prices-value", prices, "JSON", references=[("money.json", "money", 1)])
    builder = StreamsBuilder(config=settings(registry))
    builder.stream("orders", value=Avro()).select("id", "item.sku").to("out")
    builder.stream("prices", value=JsonSchema()).select("id", "price.pence").to("pence")
    with TopologyTestDriver(builder.build(), settings(registry), spark=spark) as driver:
        driver.create_input_topic("orders").pipe_rows([(None, value(number, whole, {"id": 1, "item": {"sku": "a"}}))])
        assert driver.create_output_topic("out").read_rows() == [{"id": 1, "sku": "a"}]
        driver.create_input_topic("prices").pipe_rows([(None, prefix(priced) + b'{"id": 2, "price": {"pence": 99}}')])
        assert driver.create_output_topic("pence").read_rows() == [{"id": 2, "pence": 99}]


def imported_files():
    """Return the bytes of a file set in which orders import items, and these import money."""
    files = descriptor_pb2.FileDescriptorSet()
    kind = descriptor_pb2.FieldDescriptorProto
    for name, message, imports, of in (
        ("shop/money.proto", "Money", (), None),
        ("shop/item.proto", "Item", ("shop/money.proto",), ".shop.Money"),
        ("shop/order.proto", "Order", ("shop/item.proto",), ".shop.Item"),
    ):
        file = files.file.add(name=name, package="shop", syntax="proto3", dependency=imports)
        field = file.message_type.add(name=message).field.add(name="what", number=1, label=1)
        field.type = kind.TYPE_INT64 if of is None else kind.TYPE_MESSAGE
        if of is not None:
            field.type_name = of
    return files.SerializeToString()


def test_files_that_protobuf_schemas_import_are_registered_first(spark, registry):
    form = Protobuf(imported_files(), "shop.Order", framed=True)
    builder = StreamsBuilder(config=settings(registry))
    rows = builder.stream("orders", value=Json("pence long"))
    rows.selectExpr("named_struct('what', named_struct('what', pence)) as what").to("out", value=form)
    topology = builder.build()
    with pytest.raises(TopologyException, match="does not have 'shop/money.proto', which the schema imports"):
        TopologyTestDriver(topology, settings(registry), spark=spark)
    for _ in range(2):
        with TopologyTestDriver(topology, settings(registry, **{"auto.register.schemas": True}), spark=spark) as driver:
            driver.create_input_topic("orders").pipe_input(None, {"pence": 99})
            (data,) = driver.create_output_topic("out", value=Raw()).read_rows()
    assert {name: len(versions) for name, versions in registry.subjects.items()} == {
        "shop/money.proto": 1,
        "shop/item.proto": 1,
        "out-value": 1,
    }
    # A reader has the registry alone, and finds it all there.
    builder = StreamsBuilder(config=settings(registry))
    builder.stream("out", value=Protobuf()).selectExpr("what.what.what as pence").to("read")
    with TopologyTestDriver(builder.build(), settings(registry), spark=spark) as driver:
        driver.create_input_topic("out").pipe_rows([(None, data)])
        assert driver.create_output_topic("read").read_rows() == [{"pence": 99}]
