from sparkrelay.records.formats import Json, String
from sparkrelay.topology.forks import repeated_steps


def repeated(builder):
    return {step.text for step in repeated_steps(builder.build().legs)}


def test_steps_in_front_of_a_fork_are_repeated(builder, flights):
    drawn = flights.where("delay > 1").selectExpr("*", "rand() as r")
    drawn.where("r < 0.1").to("sample", value=Json())
    drawn.where("r >= 0.1").to("rest", value=Json())
    assert repeated(builder) == {'where("delay > 1")', 'selectExpr("*", "rand() as r")'}


def test_without_a_fork_none_are(builder, flights):
    flights.selectExpr("*", "rand() as r").to("one", value=Json())
    flights.selectExpr("*", "rand() as r").to("two", value=Json())
    assert repeated(builder) == set()


def test_a_topic_between_keeps_what_was_drawn(builder, flights):
    drawn = flights.selectExpr("*", "rand() as r").repartition("carrier")
    drawn.where("r < 0.1").to("sample", value=Json())
    drawn.where("r >= 0.1").to("rest", value=Json())
    assert repeated(builder) == set()


def test_behind_a_union_each_stream_has_its_own_rows(builder, flights):
    other = builder.stream("others", key=String("carrier"), value=Json("origin string, delay double, time timestamp"))
    both = flights.unionByName(other).selectExpr("*", "uuid() as id")
    both.to("all", value=Json())
    assert repeated(builder) == set()
    both.where("delay > 1").to("late", value=Json())
    assert 'selectExpr("*", "uuid() as id")' in repeated(builder)


def test_late_rows_are_not_those_that_count(builder, flights, F):  # noqa: N803 - as everybody names it
    drawn = flights.selectExpr("*", "uuid() as id").withWatermark("time", "1 hour")
    drawn.groupBy(F.window("time", "1 hour")).agg(F.count("*").alias("n"), late_to="late").to("out")
    assert repeated(builder) == set()


def test_a_stream_that_is_put_together_with_itself_forks(builder, flights):
    drawn = flights.selectExpr("*", "rand() as r")
    drawn.where("r < 0.1").unionByName(drawn.where("r > 0.9")).to("ends", value=Json())
    assert repeated(builder) == {'selectExpr("*", "rand() as r")'}


def test_the_ways_out_of_a_table_fork_behind_it(builder, flights):
    counts = flights.groupBy("carrier").count().to_stream().selectExpr("*", "rand() as r")
    counts.where("r < 0.1").to("sample", value=Json())
    assert repeated(builder) == set()
    counts.where("r >= 0.1").to("rest", value=Json())
    assert repeated(builder) == {'selectExpr("*", "rand() as r")'}


def test_the_sides_of_a_join_of_streams_emit_rows_of_their_own(builder, flights):
    gates = builder.stream("gates", key=String("carrier"), value=Json("gate string, seen timestamp"))
    left, right = flights.withWatermark("time", "1 hour"), gates.withWatermark("seen", "1 hour")
    left.join(right, "carrier", within="1 hour").selectExpr("*", "rand() as r").to("joined", value=Json())
    assert repeated(builder) == set()
