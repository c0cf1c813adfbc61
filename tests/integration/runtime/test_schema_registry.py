"""Avro by a registry's schemas in an instance: a schema that is registered while it runs."""

import json

import pytest
from tests.doubles.schema_registry import SchemaRegistryDouble
from tests.unit.records.avro.random_schemas import written

from sparkrelay import Avro, Json, StreamsBuilder, String
from sparkrelay.records.framing import prefix

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def order(*fields):
    return {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}, *fields]}


def test_a_schema_that_is_registered_meanwhile_is_fetched(instance, make_topic, produce, consumed, wait_until):
    source, sink = make_topic("in", 1), make_topic("out", 1)
    with SchemaRegistryDouble(user="ada:secret") as registry:
        first, second = order(), order({"name": "note", "type": "string"})
        number = registry.register(f"{source}-value", first)
        builder = StreamsBuilder()
        orders = builder.stream(source, key=String("user"), value=Avro())
        orders.groupBy("user").count().to(sink, value=Json())
        streams = instance(builder, {"schema.registry.url": registry.url, "basic.auth.user.info": "ada:secret"})
        streams.start()

        def comes(count):
            def came():
                return streams.exception() or any(json.loads(row[-1])["count"] == count for row in consumed(sink))

            wait_until(came, f"the count of {count} does not come: {streams.status}")
            assert streams.exception() is None

        for count in (1, 2, 3):
            produce(source, [("a", prefix(number) + written(first, {"n": count}))])
            comes(count)
        later = registry.register(f"{source}-value", second)
        for count in (4, 5):
            produce(source, [("a", prefix(later) + written(second, {"n": count, "note": "x"}))])
            comes(count)
        assert [path for _, path in registry.requests if path == f"/schemas/ids/{later}"] == [f"/schemas/ids/{later}"]
