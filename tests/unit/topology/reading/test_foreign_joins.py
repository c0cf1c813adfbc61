"""Joins of tables by a foreign key, as they are written down."""

import pytest

from sparkrelay.records.formats import Json, String


def orders(builder, **more):
    return builder.table("orders", key=String("order_id"), value=Json("customer string, amount long"), **more)


def customers(builder, **more):
    return builder.table("customers", key=String("customer"), value=Json("name string"), **more)


def test_rows_go_there_by_the_foreign_key_and_answers_come_back_by_the_key(builder):
    orders(builder).join(customers(builder), "customer", "leftOuter").to("out", key=String("order_id"))
    topology = builder.build()
    there, back = "orders-table-by-customer-repartition", "orders-table-join-customers-table-by-order_id-repartition"
    kept = "orders-table-join-customers-table"
    assert [
        (leg.id, leg.subtopology, leg.source.topics, leg.sink and leg.sink.topic) for leg in topology.upstream_first
    ] == [
        ("store:orders-table", 0, ("orders",), there),
        ("store:customers-table", 1, ("customers",), None),
        ("store:orders-table-by-customer", 1, (there,), None),
        (f"topic:{back}", 1, (there,), back),
        (f"store:{kept}", 0, (back,), "out"),
    ]
    *_, joined, last = topology.upstream_first
    assert joined.table_join.stores == ("orders-table-by-customer", "customers-table")
    assert joined.table_join.referencing_stores == ("orders-table",)
    assert joined.table_join.how == "left"
    assert [source.topics for source in joined.sources] == [(there,), ("customers",)]
    assert last.aggregation.answers is joined.table_join
    assert last.reads_stores == {"orders-table"}
    assert [list(part.stores) for part in topology.subtopologies] == [
        ["orders-table", kept],
        ["customers-table", "orders-table-by-customer"],
    ]
    assert f"Processor: {kept} (stores: [{kept}])" in topology.describe()


def test_a_table_may_be_joined_with_itself_and_again_with_others(builder):
    """One subtopology of all: each hop leads back into it."""
    people = builder.table("people", key=String("person"), value=Json("name string, boss string"))
    bosses = people.selectExpr("person AS boss", "name AS boss_name")
    both = people.join(bosses, "boss", "left")
    both.to("out")
    orders(builder).join(people.withColumnRenamed("person", "customer"), "customer").to("more")
    topology = builder.build()
    assert [part.source_topics for part in topology.subtopologies] == [{"people"}, {"orders"}]
    assert [leg.aggregation.answers.text for leg in topology.legs if leg.aggregation and leg.aggregation.answers] == [
        "join(boss, left)",
        "join(customer, inner)",
    ]


@pytest.mark.parametrize("how", ["right", "full"])
def test_rows_of_the_right_table_alone_have_no_key_of_the_left_one(builder, how):
    orders(builder).join(customers(builder), "customer", how).to("out")
    kept = {leg.store for leg in builder.build().legs if leg.store is not None}
    assert kept >= {"orders-table-left-by-customer", "customers-table-right-by-customer"}


@pytest.mark.parametrize("how", ["left_semi", "anti"])
def test_rows_are_kept_by_whether_the_right_table_has_their_foreign_key(builder, how):
    kept = orders(builder).join(customers(builder), "customer", how)
    assert "kafka" not in kept.columns
    assert {*kept.columns} == {*orders(builder).columns} - {"kafka"}


@pytest.mark.parametrize(("how", "made"), [("inner", "inner"), ("right", "left")])
def test_the_table_with_the_foreign_key_may_stand_on_the_right(builder, how, made):
    customers(builder).join(orders(builder), "customer", how).to("out")
    joins = [leg.aggregation.answers for leg in builder.build().legs if leg.aggregation and leg.aggregation.answers]
    assert [(join.how, join.referencing, join.right) for join in joins] == [(made, "orders-table", "customers-table")]


def test_steps_of_what_is_joined_stand_behind_further_joins(builder):
    both = orders(builder).join(customers(builder), "customer").where("amount > 1")
    both.to("large")
    looking = builder.stream("clicks", key=String("order_id"))
    looking.join(both, "order_id").to("found")
    stores = {leg.store for leg in builder.build().legs if leg.aggregation is not None}
    assert "orders-table-join-customers-table-table-by-order_id" in stores


def test_stores_have_changelogs_where_their_tables_have(builder):
    orders(builder, logged=False).join(customers(builder), "customer").to("out")
    steps = {leg.store: leg.aggregation.logged for leg in builder.build().legs if leg.aggregation is not None}
    assert steps == {
        "orders-table": False,
        "customers-table": True,
        "orders-table-by-customer": True,
        "orders-table-join-customers-table": False,
    }
