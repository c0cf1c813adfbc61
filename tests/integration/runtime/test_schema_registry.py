"""Avro by a registry's schemas in an instance: a schema that is registered while it runs."""

import json

import pytest
from tests.doubles.schema_registry import SchemaRegistryDouble
from tests.unit.records.avro.random_schemas import written
from tests.waiting import LONG, remove_folder

from sparkrelay import Avro, Json, StreamsBuilder, String
from sparkrelay.records.framing import prefix

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def order(*fields):
    return {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}, *fields]}


@pytest.mark.long
def test_a_table_is_restored_by_schemas_of_which_its_subject_knows_nothing(
    instance, make_topic, produce, consumed, wait_until, tmp_path
):
    """Its topic is its changelog, and the records there were written by a schema of another subject."""
    source, sink = make_topic("in", 1, {"cleanup.policy": "compact"}), make_topic("out", 1)
    rows = make_topic("rows", 1)
    with SchemaRegistryDouble() as registry:
        number = registry.register(f"{source}-value", order())
        other = order({"name": "note", "type": "string"})
        elsewhere = registry.register("elsewhere", other)
        registered = {"schema.registry.url": registry.url}
        builder = StreamsBuilder(config=registered)
        table = builder.table(source, key=String("user"), value=Avro(), name="people")
        stream = builder.stream(rows, key=String("user"), value=Json("i int"))
        stream.join(table, "user", "left").to(sink, value=Json())
        settings = {**registered, "topology.optimization": "reuse.ktable.source.topics"}

        def comes(streams, i, n):
            def came():
                found = [json.loads(row[-1]) for row in consumed(sink)]
                return streams.exception() or any(row["i"] == i and row.get("n") == n for row in found)

            wait_until(came, f"row {i} does not come: {streams.status}")
            assert streams.exception() is None

        produce(source, [("a", prefix(number) + written(order(), {"n": 1}))])
        produce(source, [("b", prefix(elsewhere) + written(other, {"n": 2, "note": "x"}))])
        streams = instance(builder, settings)
        streams.start()
        wait_until(lambda: streams.state == "RUNNING", f"{streams.status}")
        # In the table first: a stream's row finds what is there at its time.
        wait_until(lambda: streams.exception() or len(streams.range("people")) == 2, f"{streams.status}")
        produce(rows, [("b", {"i": 1})])
        comes(streams, 1, 2)
        assert streams.stop(LONG)
        remove_folder(tmp_path / "state")
        asked = len(registry.requests)
        streams = instance(builder, settings)
        streams.start()
        produce(rows, [("b", {"i": 2})])
        comes(streams, 2, 2)
        assert ("GET", f"/schemas/ids/{elsewhere}") in registry.requests[asked:]


@pytest.mark.long
def test_a_schema_that_is_registered_meanwhile_is_fetched(instance, make_topic, produce, consumed, wait_until):
    source, sink = make_topic("in", 1), make_topic("out", 1)
    with SchemaRegistryDouble(user="ada:secret") as registry:
        first, second = order(), order({"name": "note", "type": "string"})
        number = registry.register(f"{source}-value", first)
        registered = {"schema.registry.url": registry.url, "basic.auth.user.info": "ada:secret"}
        builder = StreamsBuilder(config=registered)
        orders = builder.stream(source, key=String("user"), value=Avro())
        orders.groupBy("user").count().to(sink, value=Json())
        streams = instance(builder, registered)
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
        # An outage is waited out, however often the batch is tried meanwhile.
        third = order({"name": "weight", "type": "long"})
        last = registry.register(f"{source}-value", third)
        refused = []

        def down(path):
            if len(refused) < 5:
                refused.append(path)
                return 503, b"down"
            return None

        registry.answer = down
        produce(source, [("a", prefix(last) + written(third, {"n": 6, "weight": 1}))])
        comes(6)
        assert refused == [f"/schemas/ids/{last}"] * 5
