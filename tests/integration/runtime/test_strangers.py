"""Another program in the group of an application: it is refused alone, and one that leads is named."""

import threading

import pytest
from tests.waiting import LONG

from sparkrelay.consumer import Consumer
from sparkrelay.consumer.base.assignor import MemberAssignment
from sparkrelay.errors import StreamsException
from sparkrelay.protocol import AssignmentInfo, SubscriptionInfo
from sparkrelay.types import ProcessId

from .user_counts import counting, counts

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

KAFKA_STREAMS = SubscriptionInfo(process_id=ProcessId.parse("00000000-0000-0000-0000-000000000009")).encode()


class Stranger:
    """Joins as Kafka Streams does; if it leads it gives nothing to anybody."""

    name = "stream"
    supports_cooperative = True

    def __init__(self, said):
        self.said, self.answers = said, []

    def subscription_user_data(self, topics):
        return self.said

    def assign(self, cluster, members):
        return {name: MemberAssignment(user_data=AssignmentInfo().encode()) for name in members}

    def on_assignment(self, assignment, metadata):
        self.answers.append(assignment)


@pytest.fixture
def joins(kafka, application_id):
    """`joins(topic, said)`: a stranger joins the group, and polls until the test ends."""
    ended, polling = threading.Event(), []

    def join(topic, said):
        stranger = Stranger(said)
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": application_id}

        def poll():
            with Consumer({**settings, "enable.auto.commit": "false"}, assignors=[stranger]) as consumer:
                consumer.subscribe([topic])
                while not ended.is_set():
                    consumer.poll(0.1)

        thread = threading.Thread(target=poll, name="stranger")
        thread.start()
        polling.append(thread)
        return stranger

    yield join
    ended.set()
    for thread in polling:
        thread.join(LONG)
        assert not thread.is_alive()


@pytest.fixture
def topics(make_topic):
    return make_topic("in", 2), make_topic("out", 1)


@pytest.mark.parametrize("said", [KAFKA_STREAMS, b"\xff\xff"], ids=["Kafka Streams", "unreadable"])
def test_a_stranger_that_joins_is_refused_alone(
    instance, topics, produce, wait_for_table, wait_until, joins, said, caplog
):
    """One test on a real broker; the unit tests have more strangers."""
    produce(topics[0], [("a", {"n": 1})])
    streams = instance(counting(*topics))
    streams.start()
    wait_for_table(topics[1], counts(a=1), streams)
    stranger = joins(topics[0], said)
    wait_until(lambda: stranger.answers, "the stranger has no answer")
    produce(topics[0], [("a", {"n": 1}), ("b", {"n": 1}), ("c", {"n": 1})])
    wait_for_table(topics[1], counts(a=2, b=1, c=1), streams)
    assert "is not an instance of SparkRelay and gets no tasks" in caplog.text
    assert all(not answer.partitions for answer in stranger.answers)


def test_a_stranger_that_leads_is_named(instance, topics, joins, wait_until, application_id):
    stranger = joins(topics[0], KAFKA_STREAMS)
    wait_until(lambda: stranger.answers, "the stranger does not lead")
    streams = instance(counting(*topics))
    streams.start()
    wait_until(lambda: streams.state == "ERROR", f"{streams.status}, not ERROR")
    with pytest.raises(
        StreamsException, match=f"the leader of group '{application_id}' is not an instance of SparkRelay"
    ):
        streams.awaitTermination(LONG)
