"""Racks of a real broker reach the task assignor of a running instance."""

import socket

import pytest

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.assignment import HighAvailabilityTaskAssignor
from sparkrelay.types import TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

seen = []


class Watching(HighAvailabilityTaskAssignor):
    """Notes what it is shown."""

    def assign(self, application_state):
        seen.append(application_state)
        return super().assign(application_state)


def test_a_leader_shows_racks_and_tags_to_its_assignor(instance, make_topic, produce, wait_for_table, application_id):
    source, sink = make_topic("in", 2), make_topic("out", 1)
    produce(source, [{"key": user, "value": {"n": 1}} for user in ("a", "b", "a")])
    builder = StreamsBuilder()
    rows = builder.stream(source, key=String("user"), value=Json("n int"))
    rows.groupBy("user").count(name="counts").to(sink, value=Json())
    streams = instance(
        builder,
        {
            "task.assignor.class": Watching,
            "rack.aware.assignment.strategy": "balance_subtopology",
            "rack.aware.assignment.tags": ["zone", "host"],
            "client.tag.zone": "left",
            "client.rack": "rack-1",
        },
    )
    streams.start()
    wait_for_table(sink, {b"a": {"user": "a", "count": 2}, b"b": {"user": "b", "count": 1}}, streams)
    state = seen[-1]
    (process,) = state.clients.values()
    assert (process.rack_id, process.client_tags["zone"]) == ("rack-1", "left")
    assert process.client_tags["host"][:21] == socket.gethostname()[:21]
    racks = {at: found for info in state.all_tasks for at, found in info.partition_to_rack_ids.items()}
    topics = {source, f"{application_id}-counts-changelog"}
    assert racks == {TopicPartition(topic, p): {"rack-1"} for topic in topics for p in range(2)}
