# ruff: noqa: N803 - everybody writes F

import pytest
from hypothesis import given, settings, strategies as st
from pyspark.sql import functions

from sparkrelay.errors import TopologyException
from sparkrelay.records.formats import Json, String
from sparkrelay.topology import StreamsBuilder
from sparkrelay.topology.event_time import EventTime


def steps(parts):
    return [text for part in parts for text in part.steps]


def test_a_straight_way_is_one_leg(builder, flights, F):
    table = flights.where("delay is not null").groupBy("carrier").agg(F.sum("delay").alias("total"))
    table.withColumn("late", F.col("total") / 2).to("delays", value=Json(), key=String("carrier"))
    (leg,) = builder.build().legs
    assert leg.subtopology == 0
    assert leg.source.topics == ("flights",)
    assert (leg.source.key, leg.source.name) == (String("carrier"), "flights")
    assert not leg.source.internal
    assert steps(leg.before) == ["where delay IS NOT NULL", "where carrier IS NOT NULL"]
    assert leg.aggregation.store == "flights-by-carrier"
    assert leg.aggregation.keys == ("carrier",)
    assert leg.aggregation.text == "groupBy(carrier).agg(sum(delay) AS total)"
    assert leg.aggregation.columns.names == ["carrier", "total"]
    assert steps(leg.of_table) == ["with late = total / CAST(2 AS double)"]
    assert leg.after == ()
    assert (leg.sink.topic, leg.sink.key, leg.sink.value) == ("delays", String("carrier"), Json())
    assert not leg.sink.internal


def test_a_store_needs_no_sink(builder, flights):
    flights.groupBy("carrier").count()
    (leg,) = builder.build().legs
    assert [call.text for call in leg.aggregation.calls] == ["count(1)"]
    assert leg.sink is None
    assert leg.after == ()


def test_a_store_may_have_no_changelog(builder, flights, F):
    flights.groupBy("carrier").count(name="counts", logged=False).to("out")
    topology = builder.build()
    assert topology.internal_topics == frozenset()
    (part,) = topology.subtopologies
    assert (part.stores, part.logged_stores, part.stateful) == (("counts",), (), True)
    (leg,) = part.legs
    assert not leg.aggregation.logged


def test_changelogs_are_for_all_stores_of_a_task_or_for_none(builder, flights, F):
    flights.groupBy("carrier").count(name="counts", logged=False).to("counts")
    flights.groupBy("carrier").agg(F.sum("delay").alias("n"), name="delays").to("delays")
    with pytest.raises(TopologyException, match=r"\.py:\d+: groupBy\(carrier\).* has no changelog, and groupBy\(car"):
        builder.build()


def test_batches_are_not_given_behind_a_store_without_changelog(builder, flights, F):
    counts = flights.groupBy("carrier").count(name="counts", logged=False)
    counts.to("counts")
    flights.foreachBatch(print)
    builder.build()
    counts.to_stream().foreachBatch(print)
    with pytest.raises(
        TopologyException, match=r"foreachBatch\(print\) stands behind groupBy\(carrier\).* of .*, which has no"
    ):
        builder.build()


def test_batches_are_not_given_behind_a_lookup_without_changelog(builder, flights, F):
    table = builder.table("carriers", key=String("carrier"), value=Json("name string"), logged=False)
    flights.join(table, "carrier").foreachBatch(print)
    with pytest.raises(TopologyException, match=r"stands behind table\(.*has no changelog"):
        builder.build()


def test_logged_is_yes_or_no(flights, F):
    with pytest.raises(TopologyException, match=r"agg\(\) takes logged=True or logged=False, not 1"):
        flights.groupBy("carrier").agg(F.sum("delay").alias("n"), logged=1)


def test_a_fork_repeats_the_shared_steps(builder, flights):
    late = flights.where("delay > 0")
    late.select("origin").to("origins")
    late.to("late")
    first, second = builder.build().legs
    assert steps(first.before) == ["where delay > CAST(0 AS double)", "select origin"]
    assert steps(second.before) == ["where delay > CAST(0 AS double)"]
    assert first.before[0].rows.node is second.before[0].rows.node
    assert builder.build().describe().count("where delay > CAST(0 AS double)") == 1
    assert first.source is second.source
    assert first.id != second.id


def test_another_grouping_goes_through_a_repartition_topic(builder, flights, F):
    flights.where("delay > 0").groupBy("origin", F.window("time", "1 day")).count().to("by-origin")
    topology = builder.build()
    writer, reader = topology.legs
    assert (writer.subtopology, reader.subtopology) == (0, 1)
    assert writer.aggregation is None
    assert steps(writer.before) == ["where delay > CAST(0 AS double)", "where origin IS NOT NULL"]
    # A window as part of the key would only scatter an airport's days.
    assert writer.sink.key == ("origin",)
    assert writer.sink.internal
    assert writer.sink.topic == "flights-by-origin-window-repartition"
    assert writer.sink.partitions is None
    assert reader.source.internal
    assert reader.source.topics == (writer.sink.topic,)
    assert steps(reader.before) == ["where time IS NOT NULL", "with window = window(time, 1 day, 0:00:00)"]
    assert (reader.aggregation.keys, reader.aggregation.window) == (("origin", "window"), "window")
    first, second = topology.subtopologies
    assert (first.stateful, second.stateful) == (False, True)
    assert (first.stores, second.stores) == ((), ("flights-by-origin-window",))
    assert first.repartition_sinks == {writer.sink.topic}
    assert first.source_topics == {"flights"}
    assert second.source_topics == frozenset()
    assert second.sink_topics == topology.sink_topics == {"by-origin"}
    assert topology.source_topics == {"flights"}
    assert topology.internal_topics == {writer.sink.topic, "flights-by-origin-window-changelog"}


def test_sessions_are_never_computed_before_the_topic(builder, flights, F):
    """Each row would have one of its own, and that would be sent somewhere else than the next row's."""
    timed = flights.withWatermark("time", "1 day")
    timed.groupBy(F.upper("origin"), F.session_window("time", "1 hour")).count().to("out")
    writer, reader = builder.build().legs
    assert steps(writer.before)[-2:] == ["with `upper(origin)` = upper(origin)", "where `upper(origin)` IS NOT NULL"]
    assert writer.sink.key == ("upper(origin)",)
    assert reader.aggregation.keys == ("upper(origin)", "session_window")
    assert reader.aggregation.sessions


def test_sessions_of_everything_are_in_one_task(builder, flights, F):
    session = F.session_window("time", "1 hour").alias("all")
    flights.withWatermark("time", "1 day").groupBy(session).count().to("out")
    writer, reader = builder.build().legs
    assert (writer.sink.key, writer.sink.partitions) == (("time",), 1)
    assert (reader.aggregation.keys, reader.aggregation.sessions) == (("all",), True)


def test_several_columns_make_the_key_together(builder, flights):
    flights.groupBy("origin", "delay").count().to("out")
    writer, _ = builder.build().legs
    assert writer.sink.key == ("origin", "delay")
    assert writer.before == ()


def test_only_an_expression_is_computed_before_the_topic(builder, flights, F):
    flights.groupBy(F.upper("origin")).count().to("out")
    writer, reader = builder.build().legs
    assert steps(writer.before) == ["with `upper(origin)` = upper(origin)", "where `upper(origin)` IS NOT NULL"]
    assert writer.sink.key == ("upper(origin)",)
    assert reader.aggregation.keys == ("upper(origin)",)


def test_an_expression_beside_a_column_is_computed_behind_the_topic(builder, flights, F):
    flights.groupBy("origin", F.upper("carrier")).count().to("out")
    writer, reader = builder.build().legs
    assert writer.sink.key == ("origin",)
    assert steps(writer.before) == ["where origin IS NOT NULL"]
    assert reader.aggregation.keys == ("origin", "upper(carrier)")


def test_a_nested_column_comes_before_an_expression(builder, F):
    stream = builder.stream("t", value=Json("who struct<name string>, time timestamp"))
    stream.groupBy(F.window("time", "1 day"), "who.name").count().to("out")
    writer, reader = builder.build().legs
    assert writer.sink.key == ("name",)
    assert steps(writer.before) == ["with name = who.name", "where name IS NOT NULL"]
    assert reader.aggregation.keys == ("window", "name")


def test_one_grouping_shares_its_repartition_topic(builder, flights, F):
    grouped = flights.groupBy("origin")
    grouped.count().to("counts")
    grouped.agg(F.max("delay")).to("worst")
    legs = builder.build().legs
    assert [leg.sink.topic for leg in legs] == ["flights-by-origin-repartition", "counts", "worst"]
    assert [leg.subtopology for leg in legs] == [0, 1, 1]
    assert [leg.aggregation.store for leg in legs[1:]] == ["flights-by-origin", "flights-by-origin-2"]


def test_an_explicit_repartition_serves_later_groupings(builder, flights):
    by_origin = flights.repartition("origin", name="airports", partitions=8)
    by_origin.groupBy("origin").count().to("one")
    by_origin.groupBy("origin", "carrier").count().to("two")
    by_origin.to("airports")
    writer, *readers = builder.build().legs
    assert (writer.sink.topic, writer.sink.partitions, writer.sink.key) == ("airports-repartition", 8, ("origin",))
    assert {leg.subtopology for leg in readers} == {1}
    assert [leg.id for leg in readers] == [
        "store:airports-by-origin",
        "store:airports-by-origin-carrier",
        "sink:airports-to-airports",
    ]


def test_changes_of_a_table_are_grouped_through_a_topic(builder, flights, F):
    changes = flights.groupBy("carrier").count(name="per-carrier").to_stream()
    changes.where("count > 1").groupBy("carrier").agg(F.count("*")).to("changes")
    first, second = builder.build().legs
    assert first.aggregation.store == "per-carrier"
    assert steps(first.after) == ["where count > CAST(1 AS bigint)", "where carrier IS NOT NULL"]
    assert first.sink.topic == "per-carrier-by-carrier-repartition"
    assert second.aggregation.store == "per-carrier-by-carrier"


def test_steps_of_a_table_end_where_its_changes_become_a_stream(builder, flights):
    flights.groupBy("carrier").count().withColumnRenamed("count", "n").to("all")
    flights.groupBy("carrier").count().withColumnRenamed("count", "n").to_stream().where("n > 1").drop("n").to("some")
    flights.groupBy("carrier").count().to_stream().where("count > 1").to("others")
    flights.where("delay > 1").to("rows")
    legs = builder.build().legs
    assert [steps(leg.of_table) for leg in legs] == [["rename count to n"], ["rename count to n"], [], []]
    assert [steps(leg.after) for leg in legs] == [
        [],
        ["where n > CAST(1 AS bigint)", "drop n"],
        ["where count > CAST(1 AS bigint)"],
        [],
    ]


def test_a_key_that_was_overwritten_no_longer_counts(builder, flights, F):
    flights.withColumn("carrier", F.upper("carrier")).groupBy("carrier").count().to("out")
    assert [leg.subtopology for leg in builder.build().legs] == [0, 1]


def test_subtopologies_are_what_source_topics_connect(builder):
    builder.stream("a").to("x")
    builder.stream(["b", "c"]).to("x")
    builder.stream(["d", "a"]).to("y")
    builder.stream("c").to("z")
    topology = builder.build()
    assert [part.source_topics for part in topology.subtopologies] == [{"a", "d"}, {"b", "c"}]
    assert [leg.sink.topic for leg in topology.legs] == ["x", "y", "x", "z"]


def test_a_late_source_can_connect_what_was_apart(builder):
    for topic in ("a", "b", "c"):
        builder.stream(topic).to(f"{topic}-out")
    builder.stream(["c", "a"]).to("both")
    assert [part.source_topics for part in builder.build().subtopologies] == [{"a", "c"}, {"b"}]


def test_subtopologies_are_numbered_by_their_first_source(builder):
    first = builder.stream("a", key=String())
    second = builder.stream("b", key=String())
    second.groupBy("kafka.timestamp").count().to("second")
    first.groupBy("kafka.timestamp").count().to("first")
    parts = builder.build().subtopologies
    assert [{topic for leg in part.legs for topic in leg.source.topics} for part in parts] == [
        {"a"},
        {"b"},
        {"b-by-timestamp-repartition"},
        {"a-by-timestamp-repartition"},
    ]


def test_building_twice_gives_the_same(builder, flights):
    flights.groupBy("origin").count().to("x")
    assert builder.build().fingerprint == builder.build().fingerprint


def test_the_fingerprint_is_of_meaning_not_of_place():
    def make(*, condition="a > 1", topic="out", name=None, schema="a int, b string"):
        builder = StreamsBuilder()
        stream = builder.stream("in", key=String("b"), value=Json(schema))
        stream.where(condition).groupBy("b").count(name=name).to(topic)
        return builder.build().fingerprint

    assert make() == make()
    different = [make(), make(condition="a > 2"), make(topic="other"), make(name="n"), make(schema="a int")]
    assert len(set(different)) == len(different)


@pytest.mark.parametrize("more", [{"logged": False}, {"retention": "7 days"}])
def test_the_fingerprint_knows_how_a_store_is_kept(F, more):
    def made(**more):
        builder = StreamsBuilder()
        stream = builder.stream("in", key=String("b"), value=Json("at timestamp")).withWatermark("at", "1 minute")
        stream.groupBy("b", F.window("at", "1 hour")).agg(F.count("*"), name="counts", **more).to("out")
        return builder.build().fingerprint

    assert made() != made(**more)


def test_read_back_is_no_circle(builder, flights):
    flights.to("copy")
    builder.stream("copy").to("copy-of-copy")
    assert len(builder.build().subtopologies) == 2


# -- any tree at all ----------------------------------------------------------------------------------------------

ORIGIN = Json("origin string")
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["stream", "where", "overwrite", "repartition", "count", "to_stream", "to"]),
        st.integers(0, 50),
        st.sampled_from(["carrier", "origin"]),
    ),
    min_size=1,
    max_size=12,
)


def write(actions):
    """Write a random but legal topology; return it with the numbers of its ends."""
    builder = StreamsBuilder()
    streams, tables, used = [builder.stream("t0", key=String("carrier"), value=ORIGIN)], [], set()
    repartitions = sinks = 0
    topics = 1
    for action, index, column in actions:
        stream = streams[index % len(streams)]
        if action == "stream":
            streams.append(builder.stream([f"t{topics}", f"t{index % topics}"], key=String("carrier"), value=ORIGIN))
            topics += 1
        elif action == "where":
            used.add(id(stream))
            streams.append(stream.where(f"{column} > '{index}'"))
        elif action == "overwrite":
            used.add(id(stream))
            streams.append(stream.withColumn(column, functions.upper(column)))
        elif action == "repartition":
            used.add(id(stream))
            streams.append(stream.repartition(column))
            repartitions += 1
        elif action == "count":
            used.add(id(stream))
            before = len([n for n in builder._record.nodes if type(n).__name__ == "RepartitionNode"])
            tables.append(stream.groupBy(column).count())
            repartitions += len([n for n in builder._record.nodes if type(n).__name__ == "RepartitionNode"]) - before
        elif action == "to_stream" and tables:
            streams.append(tables.pop(index % len(tables)).to_stream())
            # Its one way out, so that nothing else takes a second one.
            streams.pop().to(f"out-{sinks}")
            sinks += 1
        elif action == "to":
            used.add(id(stream))
            stream.to(f"out-{sinks}")
            sinks += 1
    for stream in streams:
        if id(stream) not in used:
            stream.to(f"out-{sinks}")
            sinks += 1
    for table in tables:
        table.to(f"out-{sinks}")
        sinks += 1
    return builder, repartitions, sinks


@given(ACTIONS)
@settings(max_examples=15, deadline=None)
def test_legs_cover_the_ends_and_nothing_else(actions):
    builder, repartitions, sinks = write(actions)
    topology = builder.build()
    legs = topology.legs
    assert len(legs) == repartitions + sinks
    assert sorted(leg.sink.topic for leg in legs if leg.sink is not None and not leg.sink.internal) == sorted(
        f"out-{number}" for number in range(sinks)
    )
    assert len({leg.id for leg in legs}) == len(legs)
    stores = [leg.aggregation.store for leg in legs if leg.aggregation is not None]
    assert len(set(stores)) == len(stores)
    # A topic is read by one subtopology, and a repartition topic is written before it is read.
    readers = {}
    for part in topology.subtopologies:
        for leg in part.legs:
            for topic in leg.source.topics:
                assert readers.setdefault((leg.source.internal, topic), part.id) == part.id
    for leg in legs:
        assert leg.subtopology == topology.subtopologies[leg.subtopology].id
        if leg.sink is not None and leg.sink.internal:
            assert readers[True, leg.sink.topic] > leg.subtopology
    assert topology.fingerprint == write(actions)[0].build().fingerprint
    for part in topology.subtopologies:
        assert f"Sub-topology: {part.id}\n" in topology.describe()


@given(ACTIONS)
@settings(max_examples=10, deadline=None)
def test_names_do_not_change_when_something_is_added_elsewhere(actions):
    builder, *_ = write(actions)
    before = [(leg.id, leg.sink and leg.sink.name) for leg in builder.build().legs]
    other = builder.stream("elsewhere", key=String("carrier"), value=ORIGIN)
    other.where("true").groupBy("origin").count().to("there")
    after = [(leg.id, leg.sink and leg.sink.name) for leg in builder.build().legs]
    assert set(before) < set(after)


def test_a_watermark_is_that_of_the_grouping_s_own_rows():
    builder = StreamsBuilder()
    clicks = builder.stream("clicks", key=String("page"), value=Json("user string, time timestamp"))
    timed = clicks.withWatermark("time", "10 minutes").where("user is not null")
    timed.groupBy("user").count(name="by-user").to("users")
    timed.withWatermark("time", "1 hour").groupBy("page").count(name="by-page").outputMode("update").to("pages")
    clicks.groupBy("page").count(name="without").to("others")
    found = {leg.aggregation.store: leg.aggregation for leg in builder.build().legs if leg.aggregation is not None}
    assert found["by-user"].watermark == EventTime("time", 600_000), "through its repartition topic"
    assert found["by-page"].watermark == EventTime("time", 3_600_000), "the last one counts"
    assert found["without"].watermark is None
    assert not any(aggregation.final for aggregation in found.values())


def test_a_retention_is_part_of_no_name(F):
    def built(**more):
        builder = StreamsBuilder()
        clicks = builder.stream("clicks", key=String("page"), value=Json("time timestamp"))
        timed = clicks.withWatermark("time", "10 minutes").groupBy("page", F.window("time", "1 hour"))
        timed.agg(F.count("*"), **more).outputMode("append").to("pages")
        (leg,) = builder.build().legs
        return leg

    without, kept = built(), built(retention="7 days")
    assert (without.aggregation.retention, kept.aggregation.retention) == (None, "7 days")
    assert (without.id, without.aggregation.store) == (kept.id, kept.aggregation.store)


def test_final_rows_are_a_stream_without_the_watermark_they_came_of(F):
    builder = StreamsBuilder()
    clicks = builder.stream("clicks", key=String("page"), value=Json("time timestamp"))
    hours = clicks.withWatermark("time", "10 minutes").groupBy("page", F.window("time", "1 hour"))
    final = hours.count(name="first").outputMode("append")
    final.where("count > 1").groupBy("count").count(name="second").to("out")
    topology = builder.build()
    found = {leg.aggregation.store: leg.aggregation for leg in topology.legs if leg.aggregation is not None}
    assert (found["first"].final, found["second"].final, found["second"].watermark) == (True, False, None)
    assert '.outputMode("append")' in topology.describe()


def test_final_rows_without_a_watermark_are_refused():
    builder = StreamsBuilder()
    builder.stream("clicks", key=String("page"), value=Json("n int")).groupBy("page").count().outputMode("append").to(
        "o"
    )
    with pytest.raises(TopologyException, match=r"outputMode\(\"append\"\) needs to know when a window is over"):
        builder.build()


def test_final_rows_without_windows_are_refused():
    builder = StreamsBuilder()
    clicks = builder.stream("clicks", key=String("page"), value=Json("time timestamp"))
    clicks.withWatermark("time", "10 minutes").groupBy("page").count().outputMode("append").to("out")
    with pytest.raises(TopologyException, match=r"gives the final row of each window, and this grouping has none"):
        builder.build()


def test_a_union_is_a_leg_for_each_stream():
    builder = StreamsBuilder()
    here, there, more = (builder.stream(name, key=String("page"), value=Json("n int")) for name in ("a", "b", "c"))
    together = here.where("n > 1").unionByName(there).unionByName(more.where("n > 3")).where("n < 9")
    together.to("out", value=Json())
    together.groupBy("page").count(name="pages").to("counts")
    topology = builder.build()
    legs = {leg.id: leg for leg in topology.legs}
    assert sorted(legs) == [
        "sink:a-to-out",
        "sink:a-to-out#2",
        "sink:a-to-out#3",
        "store:pages",
        "topic:pages-repartition",
        "topic:pages-repartition#2",
        "topic:pages-repartition#3",
    ]
    assert [legs[f"sink:a-to-out{end}"].source.topics for end in ("", "#2", "#3")] == [("a",), ("b",), ("c",)]
    assert steps(legs["sink:a-to-out#3"].before) == ["where n > 3", "where n < 9"]
    assert steps(legs["sink:a-to-out#2"].before) == ["where n < 9"]
    assert steps(legs["sink:a-to-out"].before) == ["where n > 1", "where n < 9"]
    assert topology.source_topics == {"a", "b", "c"}


def test_a_union_has_the_watermark_that_both_streams_have():
    builder = StreamsBuilder()
    one, other = (builder.stream(name, value=Json("page string, time timestamp")) for name in ("a", "b"))
    timed = one.withWatermark("time", "1 hour")
    alone = timed.union(other)
    alone.groupBy("page").count(name="without").to("out")
    alone.withWatermark("time", "2 hours").groupBy("page").count(name="with").to("more")
    timed.union(other.withWatermark("time", "3 hours")).groupBy("page").count(name="both").to("most")
    found = {leg.aggregation.store: leg.aggregation for leg in builder.build().legs if leg.aggregation is not None}
    assert found["without"].watermark is None, "one of them alone has it"
    assert found["with"].watermark == EventTime("time", 2 * 3_600_000)
    assert found["both"].watermark == EventTime("time", 3 * 3_600_000), "the longer delay"


def test_a_union_that_leads_nowhere_is_refused():
    builder = StreamsBuilder()
    one = builder.stream("a", value=Json("n int"))
    one.to("out", value=Json())
    one.union(builder.stream("b", value=Json("n int")))
    with pytest.raises(TopologyException, match=r"nothing uses the result of union\(\.\.\.\)"):
        builder.build()


def test_the_legs_of_a_union_are_called_like_no_other_leg():
    builder = StreamsBuilder()
    here, there = (builder.stream(name, value=Json("n int")) for name in ("a", "b"))
    here.union(there).to("out", value=Json())
    here.where("n > 1").to("out", value=Json())
    legs = builder.build().legs
    assert len({leg.id for leg in legs}) == len(legs) == 3


def test_windows_that_never_end_are_warned_of(builder, flights, F, caplog):
    flights.groupBy(F.window("time", "1 day"), "carrier").count().to("days")
    ended = flights.withWatermark("time", "1 hour").groupBy(F.window("time", "1 hour"), "carrier")
    ended.count().to("hours")
    flights.groupBy("carrier").count().to("carriers")
    builder.build()
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "the windows of groupBy(window, carrier).agg(count(1) AS count) never end" in warning
