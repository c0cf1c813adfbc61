"""Formats whose schemas are the registry's, resolved without Spark."""

import json

import pytest
from tests.doubles.schema_registry import SchemaRegistryDouble

from sparkrelay.config import StreamsConfig
from sparkrelay.errors import ConfigException, SchemaRegistryException, TopologyException
from sparkrelay.records.formats import Avro, JsonSchema, String
from sparkrelay.runtime.topics.registered_schemas import with_registered_schemas
from sparkrelay.topology import StreamsBuilder

pytestmark = pytest.mark.usefixtures("spark")


def order(*names):
    return {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": n, "type": "int"} for n in names],
    }


@pytest.fixture
def registry():
    with SchemaRegistryDouble() as double:
        yield double


def config(registry, **more):
    basics = {"application.id": "a", "bootstrap.servers": "localhost:9", "schema.registry.url": registry.url}
    return StreamsConfig.from_dict(basics | more)


def resolved(registry, source, *, topics="orders", key=None, sink=None, **more):
    builder = StreamsBuilder(config=config(registry, **more))
    builder.stream(topics, key=key, value=source).to("out", value=sink)
    (leg,) = with_registered_schemas(builder.build(), config(registry, **more)).legs
    return leg


def text(schema):
    return json.dumps(schema, separators=(",", ":"))


def test_a_pipeline_that_needs_no_registry_asks_none(registry):
    builder = StreamsBuilder()
    builder.stream("orders", key=String("k"), value=Avro(order("id"))).to("out")
    topology = builder.build()
    assert with_registered_schemas(topology, config(registry)) is topology
    assert registry.requests == []


def test_keys_and_values_have_subjects_of_their_own(registry):
    key, value = registry.register("orders-key", order("k")), registry.register("orders-value", order("v"))
    out = registry.register("out-value", order("v", "w"))
    leg = resolved(registry, Avro(), key=Avro(), sink=Avro())
    assert (leg.source.key.schema, leg.source.key.schema_id) == (text(order("k")), key)
    assert (leg.source.value.schema, leg.source.value.schema_id) == (text(order("v")), value)
    assert (leg.sink.value.schema, leg.sink.value.schema_id) == (text(order("v", "w")), out)
    assert leg.source.value.writers.known() == {value: json.dumps(order("v"))}


def test_a_version_is_kept_to(registry):
    first = registry.register("orders-value", order("a"))
    newest = registry.register("orders-value", order("a", "b"))
    form = resolved(registry, Avro(version=1)).source.value
    assert (form.schema_id, set(form.writers.known())) == (first, {first, newest})
    with pytest.raises(TopologyException, match="no version 3 of it"):
        resolved(registry, Avro(version=3))


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("TopicNameStrategy", "orders-value"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "shop.Order"),
        ("TopicRecordNameStrategy", "orders-shop.Order"),
    ],
)
def test_subjects_by_strategy(registry, strategy, subject):
    number = registry.register(subject, order("a"))
    more = {"value.subject.name.strategy": strategy}
    form = resolved(registry, Avro(order("a"), framed=True), **more).source.value
    assert set(form.writers.known()) == {number}
    if not strategy.endswith("TopicNameStrategy"):
        with pytest.raises(TopologyException, match=r"which Avro\(\) does not have"):
            resolved(registry, Avro(), **more)
    assert resolved(registry, Avro(subject=subject), **more).source.value.schema_id == number


def test_several_topics_need_one_schema(registry):
    registry.register("a-value", order("x"))
    registry.register("b-value", order("x"))
    assert resolved(registry, Avro(), topics=["a", "b"]).source.value.schema == text(order("x"))
    registry.register("b-value", order("y"))
    with pytest.raises(TopologyException, match="a-value and b-value have different schemas"):
        resolved(registry, Avro(), topics=["a", "b"])
    form = resolved(registry, Avro(order("x"), framed=True), topics=["a", "b"]).source.value
    assert len(form.writers.known()) == 2


def test_numbers_that_come_later_are_asked_for(registry):
    registry.register("orders-value", order("a"))
    writers = resolved(registry, Avro()).source.value.writers
    later = registry.register("elsewhere", order("b"))
    other = registry.register("elsewhere", {"type": "object"}, "JSON")
    writers.learn([later, other, 999])
    assert (writers.get(later), writers.get(other), writers.get(999)) == (json.dumps(order("b")), None, None)


def test_a_schema_that_cannot_be_used_is_none_and_what_is_refused_is_said(registry, caplog):
    registry.register("orders-value", order("a"))
    registry.register("x", order("b"))
    writers = resolved(registry, Avro()).source.value.writers
    lost = registry.register("lost", order("c"), references=[("shop.X", "gone", 1)])
    wrong = registry.register("wrong", order("d"), references=[("shop.X", "x", 1), ("shop.X", "x", 2)])
    no_json = registry.register("other", order("e"), references=[("shop.X", "text", 1)])
    registry.schemas[registry.register("text", order("f"))]["schema"] = "no json"
    writers.learn([lost, wrong, no_json])
    assert [writers.get(number) for number in (lost, wrong, no_json)] == [None] * 3
    assert [f"schema {number} cannot be used" in caplog.text for number in (lost, wrong, no_json)] == [True] * 3
    registry.answer = lambda _: (403, b"no")
    with pytest.raises(SchemaRegistryException, match="refuses"):
        writers.learn([999])


def test_versions_of_other_kinds_are_left_out(registry):
    old = registry.register("orders-value", 'syntax = "proto3"; message Order { int32 a = 1; }', "PROTOBUF")
    older = registry.register("orders-value", {"type": "object"}, "JSON")
    new = registry.register("orders-value", order("a"))
    writers = resolved(registry, Avro()).source.value.writers
    writers.learn([old, older])
    assert writers.known() == {new: json.dumps(order("a")), old: None, older: None}


def test_what_the_registry_lacks_or_has_otherwise_is_named(registry):
    with pytest.raises(TopologyException, match="has no subject 'orders-value'"):
        resolved(registry, Avro())
    registry.register("orders-value", "{", "AVRO")
    with pytest.raises(SchemaRegistryException, match="schema cannot be used: Avro.*is not JSON"):
        resolved(registry, Avro())
    with pytest.raises(TopologyException, match="has a schema of kind AVRO, not JSON"):
        resolved(registry, JsonSchema())
    with pytest.raises(TopologyException, match="auto.register.schemas=true"):
        resolved(registry, String("v"), sink=Avro(order("a"), framed=True))
    leg = resolved(registry, String("v"), sink=Avro(order("a"), framed=True), **{"auto.register.schemas": True})
    assert leg.sink.value.schema_id == registry.subjects["out-value"][0]
    registry.close()
    with pytest.raises(SchemaRegistryException, match="does not answer"):
        resolved(registry, Avro())
    with pytest.raises(ConfigException, match="schema.registry.url is not set"):
        resolved(registry, Avro(), **{"schema.registry.url": ""})


def test_the_fingerprint_has_the_schemas(registry):
    def fingerprint(form):
        builder = StreamsBuilder(config=config(registry))
        builder.stream("orders", value=form).to("out")
        return with_registered_schemas(builder.build(), config(registry)).fingerprint

    assert fingerprint(Avro(order("a"))) == fingerprint(Avro(json.dumps(order("a"), indent=2)))
    assert fingerprint(Avro(order("a"))) != fingerprint(Avro(order("b")))
    registry.register("orders-value", order("a"))
    first = fingerprint(Avro())
    assert first == fingerprint(Avro())
    assert first != fingerprint(Avro(order("a")))
    registry.register("orders-value", order("a", "b"))
    assert first != fingerprint(Avro())
    assert first == fingerprint(Avro(version=1))


def test_what_schemas_refer_to_is_put_in(registry):
    registry.register("item", {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]})
    schema = {"type": "record", "name": "Order", "fields": [{"name": "item", "type": "Item"}]}
    number = registry.register("orders-value", schema, references=[("Item", "item", 1)])
    form = resolved(registry, Avro()).source.value
    assert '"sku"' in form.schema
    assert '"sku"' in form.writers.get(number)
    later = registry.register("elsewhere", schema | {"doc": "later"}, references=[("Item", "item", 1)])
    form.writers.learn([later])
    assert '"sku"' in form.writers.get(later)


@pytest.mark.parametrize(("schema", "found"), [(order("id"), True), (order("id", "n"), False)])
def test_a_schema_is_found_where_the_registry_goes_by_its_text(registry, schema, found):
    registry.register("out-value", order("n"))
    number = registry.register("out-value", json.dumps(order("id"), indent=2))
    registry.answer = lambda path: (404, {"error_code": 40403}) if path == "/subjects/out-value" else None
    asked = len(registry.requests)
    if found:
        leg = resolved(registry, Avro(order("id")), sink=Avro(schema, framed=True), **{"auto.register.schemas": True})
        assert leg.sink.value.schema_id == number
        assert ("POST", "/subjects/out-value/versions") not in registry.requests[asked:]
    else:
        with pytest.raises(TopologyException, match="does not have this schema"):
            resolved(registry, Avro(order("id")), sink=Avro(schema, framed=True))
