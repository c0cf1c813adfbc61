"""Streams without duplicates as they are written: what they need, and the plan they make."""

import logging

import pytest

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.topology.event_time import EventTime

TIMED = EventTime("at", 60_000)


@pytest.fixture
def clicks(builder):
    return builder.stream("clicks", key=String("user"), value=Json("page string, n long, at timestamp"))


def test_rows_that_lie_by_a_column_of_the_key_stay_where_they_are(builder, clicks):
    clicks.where("n > 0").dropDuplicates(["page", "user"]).to("out")
    (subtopology,) = builder.build().subtopologies
    (leg,) = subtopology.legs
    assert leg.id == "store:clicks-deduplicated-by-page-user"
    assert subtopology.stores == subtopology.logged_stores == ("clicks-deduplicated-by-page-user",)
    first = leg.emitting
    assert (first.columns, first.within, first.watermark, leg.keeps_watermark) == (("page", "user"), False, None, False)
    # As a grouping by them would: a null may lie in any partition.
    (taken,) = leg.before
    assert taken.steps == ("where n > CAST(0 AS bigint)", "where user IS NOT NULL")


def test_other_rows_go_through_a_topic(builder, clicks):
    clicks.drop_duplicates(["page"], name="pages").groupBy("page").count().to("out")
    topology = builder.build()
    assert topology.internal_topics == {
        "pages-repartition",
        "pages-changelog",
        "pages-by-page-repartition",
        "pages-by-page-changelog",
    }
    writer, first, counts = topology.upstream_first
    assert [part.steps for part in writer.before] == [("where page IS NOT NULL",)]
    assert (first.id, first.sink.key) == ("store:pages", ("page",))
    assert counts.aggregation is not None


def test_the_watermark_counts_where_its_column_is_named_or_is_asked_for(builder, clicks):
    timed = clicks.withWatermark("at", "1 minute")
    for number, first in enumerate(
        (
            timed.dropDuplicates(["user", "At"]),
            timed.dropDuplicatesWithinWatermark(["user"]),
            timed.dropDuplicates(["user"]),
            timed.repartition("page").dropDuplicatesWithinWatermark(["page"]),
        )
    ):
        first.to(f"out-{number}")
    steps = [leg.emitting for leg in builder.build().legs if leg.emitting is not None]
    assert [(step.within, step.watermark) for step in steps] == [
        (False, TIMED),
        (True, TIMED),
        (False, None),
        (True, TIMED),
    ]


def test_a_watermark_goes_on_behind_it(builder, clicks):
    once = clicks.withWatermark("at", "1 minute").dropDuplicatesWithinWatermark(["user"])
    once.dropDuplicatesWithinWatermark(["page"]).to("out")
    assert [leg.emitting.watermark for leg in builder.build().legs if leg.emitting] == [TIMED] * 2


def test_keys_that_are_kept_for_ever_are_warned_of(builder, clicks, caplog):
    clicks.withWatermark("at", "1 minute").dropDuplicatesWithinWatermark(["user"]).to("out")
    with caplog.at_level(logging.WARNING):
        builder.build()
        assert not caplog.records
        clicks.dropDuplicates(["user"], logged=False).to("other")
    with pytest.raises(TopologyException, match=r"dropDuplicates\(user, logged=False\) has no changelog, and dropDup"):
        builder.build()
    (record,) = caplog.records
    assert "test_deduplication.py" in record.getMessage()
    assert "dropDuplicates(user, logged=False) remembers its keys for ever" in record.getMessage()
    assert "withWatermark" in record.getMessage()


def test_the_description_and_the_fingerprint_know_it(clicks, builder):
    clicks.withWatermark("at", "1 minute").dropDuplicatesWithinWatermark(["user"], name="users").to("out")
    topology = builder.build()
    text = topology.describe()
    assert "Processor: users (stores: [users])\n      dropDuplicatesWithinWatermark(user)" in text
    assert "dropDuplicatesWithinWatermark(user)" in topology.to_dot()
    prints = {topology.fingerprint}
    for delay, columns in (("2 minutes", ["user"]), ("1 minute", ["user", "page"])):
        other = StreamsBuilder()
        stream = other.stream("clicks", key=String("user"), value=Json("page string, n long, at timestamp"))
        stream.withWatermark("at", delay).dropDuplicatesWithinWatermark(columns, name="users").to("out")
        prints.add(other.build().fingerprint)
    assert len(prints) == 3


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda s: s.drop_duplicates([]), r'drop_duplicates\(\) names no columns, such as drop_duplicates\(\["id"\]\)'),
        (lambda s: s.dropDuplicates("user"), "Argument `subset` should be list or tuple, got str"),
        (lambda s: s.dropDuplicates(["user", 3]), "Argument `subset` should be str, got int"),
        (lambda s: s.dropDuplicates(["user", "zzz"]), 'Cannot resolve column name "zzz"'),
        (lambda s: s.dropDuplicates(["user"], logged=1), "takes logged=True or logged=False, not 1"),
        (lambda s: s.dropDuplicates(["user"], name="a b"), "name='a b' becomes part of a topic's name"),
        (
            lambda s: s.dropDuplicatesWithinWatermark(["user"]),
            r'put withWatermark\("time", "10 minutes"\) before it, .*; behind a union, .* it is said anew',
        ),
        (lambda s: s.union(s.where("n > 1")).dropDuplicatesWithinWatermark(["user"]), "it is said anew"),
        (lambda s: s.groupBy("page").count().dropDuplicates(["page"]), r"a table has .*; .* put to_stream\(\) before"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(clicks, write, message):
    line = write.__code__.co_firstlineno
    with pytest.raises(TopologyException, match=f"test_deduplication.py:{line}: .*{message}"):
        write(clicks)


def test_a_column_that_is_named_twice_is_meant_once(builder, clicks):
    clicks.dropDuplicates(["user", "User"]).to("out")
    (leg,) = builder.build().legs
    assert (leg.store, leg.emitting.columns) == ("clicks-deduplicated-by-user", ("user",))


def test_rows_without_kafka_s_own_columns_may_be_distinct_as_a_whole(builder, clicks):
    clicks.drop("kafka").distinct().to("out")
    (leg,) = builder.build().legs
    assert leg.emitting.columns == ("page", "n", "at", "user")


def test_a_watermark_of_both_streams_is_that_of_their_union(builder, clicks):
    timed = clicks.withWatermark("at", "1 minute")
    timed.union(timed.where("n > 1")).dropDuplicatesWithinWatermark(["user"]).to("out")
    assert [leg.emitting.watermark for leg in builder.build().legs if leg.emitting] == [TIMED]


def test_several_ways_out_begin_at_a_topic_behind_it(builder, clicks):
    first = clicks.dropDuplicates(["user", "page"])
    first.to("out")
    first.groupBy("page").count().to("pages")
    legs = [leg for at in builder.build().subtopologies for leg in at.legs]
    shared = "clicks-deduplicated-by-user-page-by-user-page-shared-repartition"
    assert [(leg.source.topics, leg.sink.topic) for leg in legs if leg.source.internal or leg.store] == [
        (("clicks",), shared),
        ((shared,), "out"),
        ((shared,), "clicks-deduplicated-by-user-page-by-page-repartition"),
        (("clicks-deduplicated-by-user-page-by-page-repartition",), "pages"),
    ]


def test_ways_that_part_behind_it_and_come_together_again_begin_at_that_topic(builder, clicks):
    first = clicks.dropDuplicates(["user", "page"])
    first.where("n > 1").union(first.where("n <= 1")).to("out")
    first_leg, *others = builder.build().legs
    shared = "clicks-deduplicated-by-user-page-by-user-page-shared-repartition"
    assert (first_leg.store, first_leg.sink.topic) == ("clicks-deduplicated-by-user-page", shared)
    assert [(leg.source.topics, leg.store, leg.sink.topic) for leg in others] == 2 * [((shared,), None, "out")]


def test_one_that_leads_nowhere_is_refused(builder, clicks):
    clicks.dropDuplicates(["user"])
    with pytest.raises(TopologyException, match=r"nothing uses the result of dropDuplicates\(\.\.\.\)"):
        builder.build()


def test_without_columns_all_but_kafka_s_make_the_key(spark):
    stream = StreamsBuilder(spark).stream("i", key=String("k"), value=Json("a int, `b c` int"))
    for once in (stream.dropDuplicates(), stream.distinct()):
        assert once._rows.node.step.columns == ("a", "b c", "k")
