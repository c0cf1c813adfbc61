"""Global tables, as they are written down."""

import pytest
from pyspark.sql import functions as F

from sparkrelay.errors import TopologyException
from sparkrelay.records.formats import Json, String
from sparkrelay.topology import StreamsBuilder


@pytest.fixture
def countries(builder):
    return builder.global_table("countries", key=String("country"), value=Json("continent string"))


@pytest.fixture
def orders(builder):
    return builder.stream("orders", key=String("user"), value=Json("country string, n int"))


def test_a_stream_looks_into_one_without_a_repartition_topic(builder, countries, orders):
    orders.join(countries, "country", "left").groupBy("user").count().to("out")
    topology = builder.build()
    (part,), (table,) = topology.subtopologies, topology.global_tables
    (leg,) = part.legs
    (lookup,) = leg.lookups
    assert (lookup.store, lookup.is_global, lookup.how) == ("countries-table", True, "left")
    assert leg.reads_stores == frozenset(), "no leg of its task keeps the table"
    assert (table.id, table.subtopology, table.aggregation.logged) == ("store:countries-table", 1, False)
    assert (part.source_topics, topology.source_topics) == ({"orders"}, {"orders"}), "no member subscribes to it"
    assert (topology.internal_topics, topology.legs) == ({"orders-by-user-changelog"}, (leg,))


def test_streams_of_several_subtopologies_look_into_one(builder, countries, orders):
    orders.join(countries, "country").to("one")
    visits = builder.stream("visits", key=String("id"), value=Json("country string"))
    visits.repartition("country").join(countries, "country").groupBy("continent").count().to("other")
    topology = builder.build()
    assert [part.id for part in topology.subtopologies] == [0, 1, 2, 3]
    assert [leg.subtopology for leg in topology.global_tables] == [4]


def test_the_stream_may_be_of_the_tables_topic(builder, countries):
    rows = builder.stream("countries", key=String("country"), value=Json("continent string"))
    rows.select("country").join(countries, "country").to("out")
    topology = builder.build()
    assert topology.source_topics == {"countries"}
    assert len(topology.global_tables) == 1


def test_it_is_described_as_in_kafka_streams(builder, countries, orders):
    orders.join(countries, "country").to("out")
    topology = builder.build()
    text = topology.describe()
    assert "   Sub-topology: 1 for global store (will not generate tasks)\n    Source: countries" in text
    assert "Processor: orders-join-1 (stores: [countries-table])" in text
    assert 'label="Sub-topology 1 for global store (will not generate tasks)"' in topology.to_dot()


def test_the_instances_of_an_application_must_agree_on_it():
    def fingerprint(schema):
        builder = StreamsBuilder()
        countries = builder.global_table("countries", key=String("country"), value=Json(schema))
        builder.stream("orders", value=Json("country string")).join(countries, "country").to("out")
        return builder.build().fingerprint

    assert fingerprint("a string") == fingerprint("a string") != fingerprint("b string")


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda table, _: table.to("out"), r"GlobalKTable has no to\(\).*stream.join"),
        (lambda table, _: table.where("true"), r"GlobalKTable has no where\(\)"),
        (lambda table, orders: orders.join(table, "user"), "USING column `user` cannot be resolved on the right side"),
        (
            lambda table, orders: orders.join(table, orders.n == table.country),
            "its key 'country' is string, and the stream's column int; cast",
        ),
        (lambda table, _: table["population"], "population"),
        (lambda table, orders: orders.join(table, "country", "full"), 'takes how="inner" or how="left"'),
        (
            lambda table, orders: orders.join(table, "country", name="x"),
            "no.*is needed for a global table|none is needed",
        ),
        (
            lambda table, orders: orders.groupBy("country").count().to_stream().join(table, "country"),
            "behind an aggregation, a join of streams or dropDuplicates.. is not there yet.*repartition",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_a_way_out(countries, orders, write, words):
    with pytest.raises(TopologyException, match=words):
        write(countries, orders)


def test_a_condition_is_said_in_the_step(builder, countries, orders):
    orders.join(countries, F.expr("n > length(continent)"), "left").select("user").to("out")
    text = builder.build().describe()
    assert "join(left, n > length(continent))" in text
    assert "array_filter" not in text


def test_one_of_another_builder_is_refused(countries):
    orders = StreamsBuilder().stream("orders", value=Json("country string"))
    with pytest.raises(TopologyException, match="same builder"):
        orders.join(countries, "country")


def test_alone_it_is_no_pipeline(builder, countries):
    with pytest.raises(TopologyException, match="nothing but global tables"):
        builder.build()


@pytest.mark.parametrize("arguments", [{"key": None}, {"value": None}])
def test_it_takes_both_formats(builder, arguments):
    with pytest.raises(TopologyException, match=r"global_table\(\) takes both formats"):
        builder.global_table("t", **{"key": String("k"), "value": Json("v int"), **arguments})
