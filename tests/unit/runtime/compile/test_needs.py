"""Which columns anything reads, from where rows go back to where they come from."""

# ruff: noqa: N803 - everybody writes F

import pytest

from sparkrelay import Json, String
from sparkrelay.operators.emitting.plan import Surroundings
from sparkrelay.runtime.compile.needs import Needs, columns_at_end


@pytest.fixture
def clicks(builder):
    return builder.stream("clicks", key=String("user"), value=Json("page string, n int, note string, at timestamp"))


def needs_of(builder):
    legs = builder.build().upstream_first
    return legs, Needs(legs, Surroundings(legs, None, None))


def read(builder):
    """Return what is read of the source of each leg, by its id."""
    legs, needs = needs_of(builder)
    return {leg.id: set(needs.source(leg)) for leg in legs}


def test_what_is_written_is_read(builder, clicks):
    clicks.select("user", "page").to("out")
    assert read(builder) == {"sink:clicks-to-out": {"user", "page"}}


def test_kafka_s_own_columns_are_not_written_and_not_read(builder, clicks):
    clicks.to("out")
    assert read(builder) == {"sink:clicks-to-out": {"user", "page", "n", "note", "at"}}


def test_what_a_filter_or_a_column_is_made_of_is_read(builder, clicks, F):
    clicks.where("n > 1").select("user", F.upper("page").alias("PAGE"), F.length("note").alias("unused")).drop(
        "unused"
    ).to("out")
    assert read(builder) == {"sink:clicks-to-out": {"user", "page", "n"}}


def test_a_key_that_is_written_is_read(builder, clicks):
    clicks.to("out", key=String("note"), value=String("page"))
    assert read(builder) == {"sink:clicks-to-out": {"note", "page"}}


def test_a_grouping_reads_its_keys_and_what_is_aggregated(builder, clicks, F):
    clicks.groupBy("user").agg(F.sum("n").alias("total")).to("out")
    assert read(builder) == {"store:clicks-by-user": {"user", "n"}}


def test_through_a_repartition_topic_goes_what_is_read_behind_it(builder, clicks, F):
    clicks.groupBy("page").agg(F.sum("n").alias("total")).to("out")
    legs, needs = needs_of(builder)
    assert needs.shipped("clicks-by-page-repartition").names == ["n", "page"], "by name"
    assert set(needs.source(legs[0])) == {"page", "n"}


def test_several_readers_of_a_topic_read_all_that_one_of_them_does(builder, clicks, F):
    again = clicks.repartition("page", name="again")
    again.groupBy("page").agg(F.sum("n").alias("total")).to("totals")
    again.groupBy("page").agg(F.max("at").alias("last")).to("lasts")
    _, needs = needs_of(builder)
    assert needs.shipped("again-repartition").names == ["at", "n", "page"]


def test_a_topic_that_nobody_reads_a_column_of_has_one(builder, clicks):
    clicks.repartition("page", name="again").selectExpr("1 AS one").to("out", value=Json())
    legs, needs = needs_of(builder)
    assert len(needs.shipped("again-repartition").names) == 1
    assert "page" in needs.source(legs[0]), "the key is written"


def test_a_lookup_reads_its_key_and_gives_the_table_s_columns(builder, clicks):
    users = builder.table("users", key=String("user"), value=Json("name string, age int"))
    clicks.join(users, "user").select("page", "name").to("out")
    legs, needs = needs_of(builder)
    (leg,) = (leg for leg in legs if leg.lookups)
    assert set(needs.source(leg)) == {"user", "page"}
    assert "name" in needs.behind(leg, leg.lookups[0])
    assert "age" not in needs.behind(leg, leg.lookups[0])


def test_a_table_keeps_all_its_columns(builder):
    builder.table("users", key=String("user"), value=Json("name string, age int")).select("user", "name").to("out")
    ((leg,), needs) = needs_of(builder)
    assert set(needs.source(leg)) == {"user", "name", "age"}
    assert "age" not in needs.behind(leg, leg.aggregation)


def test_rows_without_duplicates_are_kept_by_their_key_alone(builder, clicks):
    clicks.dropDuplicates(["user", "page"]).select("user", "n").to("out")
    assert read(builder) == {"store:clicks-deduplicated-by-user-page": {"user", "page", "n"}}


def test_whoever_is_given_rows_reads_them_all(builder, clicks):
    clicks.foreach(print)
    ((leg,), needs) = needs_of(builder)
    assert set(needs.source(leg)) == {"user", "page", "n", "note", "at"}
    assert "kafka" in columns_at_end(leg).names
