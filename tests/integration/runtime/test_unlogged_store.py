"""A store without changelog: it keeps what it has where its task ran last, and starts empty everywhere else."""

import pytest
from confluent_kafka.admin import NewPartitions
from tests.waiting import LONG

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import IncompatibleTopologyException, StreamsException

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture
def topics(make_topic):
    return make_topic("orders", 1), make_topic("counts", 1)


@pytest.fixture
def start(instance, topics, tmp_path):
    """`start(state)` starts an instance with that state."""

    def run(state):
        builder = StreamsBuilder()
        orders = builder.stream(topics[0], key=String("user"), value=Json("n int"))
        orders.groupBy("user").count(name="counts", logged=False).to(topics[1], value=Json())
        streams = instance(builder, {"state.dir": str(tmp_path / state)})
        streams.start()
        return streams

    return run


@pytest.fixture
def count_one_more(start, topics, produce, wait_for_table):
    """`count_one_more(state, expected)` has an instance with that state count a record, and stops it."""

    def run(state, expected):
        with start(state) as streams:
            produce(topics[0], [("a", {"n": 1})])
            wait_for_table(topics[1], {b"a": {"user": "a", "count": expected}}, streams)

    return run


@pytest.mark.long
def test_it_keeps_its_rows_where_it_is_and_starts_empty_elsewhere(
    count_one_more, topics, consumed, kafka_admin, application_id
):
    """The proof on a real broker, which gets no topic for it."""
    count_one_more("first", 1)
    count_one_more("first", 2)
    assert [name for name in kafka_admin.list_topics(timeout=LONG).topics if name.startswith(application_id)] == []
    count_one_more("second", 1)
    count_one_more("second", 2)
    # What it has is older than what the group has read.
    count_one_more("first", 1)
    assert len(consumed(topics[1])) == 5, "each record was counted once"


@pytest.mark.long
@pytest.mark.parametrize("when", ["while it runs", "between two runs"])
def test_a_source_that_gets_partitions_is_refused(
    when, start, topics, produce, wait_for_table, kafka_admin, fails_with, wait_until
):
    """No changelog says how many there were; keys would move to tasks that know nothing of them."""
    streams = start("first")
    produce(topics[0], [("a", {"n": 1})])
    wait_for_table(topics[1], {b"a": {"user": "a", "count": 1}}, streams)
    if when == "between two runs":
        assert streams.stop(LONG)
    kafka_admin.create_partitions([NewPartitions(topics[0], 2)])[topics[0]].result(LONG)
    if when == "between two runs":
        streams = start("first")
    fails_with(
        streams,
        (StreamsException, IncompatibleTopologyException),
        "source topic .* has 2 partitions now, not 1|without changelog.* 1 tasks.* keys would move",
    )
