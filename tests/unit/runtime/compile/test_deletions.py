"""Which legs have no filter that keeps a record without a value from a table."""

import pytest

from sparkrelay import Json, String
from sparkrelay.runtime.compile.deletions import Deletions


@pytest.fixture
def users(builder):
    return builder.stream("users", key=String("user"), value=Json("age int, country string"))


def passing(builder):
    legs = builder.build().legs
    deletions = Deletions(legs)
    return {leg.id for leg in legs if deletions.pass_through(leg)}


def test_through_the_filters_in_front_of_a_table(builder, users):
    users.where("age > 18").to_table(name="adults").to("out")
    users.where("age > 18").to("all", value=Json())
    assert passing(builder) == {"store:adults"}


def test_through_those_in_front_of_its_repartition_topics(builder, users):
    again = (
        users.where("age > 18").repartition("user", name="first").where("age < 80").repartition("user", name="second")
    )
    again.to_table(name="adults").to("out")
    assert passing(builder) == {"topic:first-repartition", "topic:second-repartition", "store:adults"}


def test_not_where_the_key_is_of_the_value(builder, users):
    users.where("age > 18").repartition("country", name="first").to_table(name="newest").to("out")
    assert passing(builder) == {"store:newest"}


def test_not_on_other_ways(builder, users):
    sent = users.where("age > 18").repartition("user", name="sent")
    sent.groupBy("user").count(name="counts").to("out")
    sent.to("all", value=Json())
    assert passing(builder) == set()


def test_not_behind_a_lookup_where_they_have_ended(builder, users):
    countries = builder.global_table("countries", key=String("country"), value=Json("name string"))
    users.join(countries, "country").to_table(name="newest").to("out")
    assert passing(builder) == set()


def test_keys_of_streams_without_formats(builder):
    raw = builder.stream("raw")
    raw.where("value is not null").repartition("key", name="sent").to_table(name="newest").to("out")
    assert passing(builder) == {"topic:sent-repartition", "store:newest"}
