"""Which tables use their source topic as their changelog, and what the topology says of it."""

import pytest

from sparkrelay.records.formats import Json, String
from sparkrelay.topology.building.optimization import reusing_source_topics

USER = Json("name string")


def of(builder, **settings):
    return reusing_source_topics(builder.build(), **{"from_beginning": True, **settings})


def users(builder, **settings):
    return builder.table("users", key=String("user"), value=USER, name="people", **settings)


def test_a_table_reuses_its_topic(builder):
    users(builder).where("name is not null").to("names")
    plain, reused = builder.build(), of(builder)
    (part,) = reused.subtopologies
    assert (part.stores, part.logged_stores, part.reused_topics) == (("people",), (), {"people": "users"})
    assert reused.reused_topics == {"people": "users"}
    assert (plain.internal_topics, reused.internal_topics) == ({"people-changelog"}, frozenset())
    assert plain.fingerprint != reused.fingerprint, "instances of both must not share a group"
    assert "changelog: the topic users itself" in reused.describe()
    assert "changelog:" not in plain.describe()
    assert "the topic users itself" in reused.to_dot()


def test_other_stores_of_its_task_keep_theirs(builder):
    people = users(builder)
    orders = builder.stream("orders", key=String("user"), value=Json("n int"))
    orders.join(people, "user").to("named")
    orders.groupBy("user").count(name="counts").to("counts")
    people.groupBy("name").count(name="names").to("names")
    reused = of(builder)
    assert reused.internal_topics == {"counts-changelog", "names-changelog", *plain_repartitions(reused)}
    assert reused.subtopologies[0].logged_stores == ("counts",)
    assert [leg.reused_topic for leg in reused.legs if leg.store == "people"] == ["users"]


def plain_repartitions(topology):
    return frozenset[str]().union(*(part.repartition_sinks for part in topology.subtopologies))


def test_a_table_whose_topic_another_store_is_made_of_keeps_its_changelog(builder):
    users(builder).to("copies")
    builder.stream("users", key=String("user"), value=USER).groupBy("user").count(name="changes").to("changes")
    reused = of(builder)
    assert reused.internal_topics == {"people-changelog", "changes-changelog"}
    assert "changelog: its own, because store changes is made of topic users, too" in reused.describe()
    assert reused.fingerprint == builder.build().fingerprint


def test_a_stream_beside_it_that_keeps_nothing_is_in_nobodys_way(builder):
    users(builder).to("copies")
    builder.stream("users", key=String("user"), value=USER).where("name is null").to("unnamed")
    assert of(builder).reused_topics == {"people": "users"}


def test_a_table_that_begins_at_the_end_of_its_topic_keeps_its_changelog(builder):
    users(builder).to("copies")
    reused = of(builder, from_beginning=False)
    assert reused.reused_topics == {}
    assert "changelog: its own, because auto.offset.reset=latest" in reused.describe()


@pytest.mark.parametrize("what", ["a table without changelog", "a stream that becomes one", "a global table"])
def test_whatever_is_no_copy_of_a_topic_stays_as_it_is(builder, what):
    match what:
        case "a table without changelog":
            users(builder, logged=False).to("copies")
        case "a stream that becomes one":
            builder.stream("users", key=String("user"), value=USER).where("name > ''").to_table(name="people").to("to")
        case _:
            table = builder.global_table("users", key=String("user"), value=USER)
            builder.stream("orders", key=String("id"), value=Json("user string")).join(table, "user").to("named")
    assert of(builder).reused_topics == {}
    assert of(builder).describe() == builder.build().describe()


def test_a_table_with_a_history_keeps_its_changelog(builder):
    """A compacted topic has the newest rows alone."""
    users(builder, history="1 hour").to("copies")
    reused = of(builder)
    assert reused.internal_topics == {"people-changelog"}
    assert "changelog: its own, because topic users need not have the rows of the table's history" in reused.describe()
