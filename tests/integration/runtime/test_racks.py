"""Racks of real brokers reach the task assignor of a running instance, and decide where tasks run."""

import json
import socket

import pytest
from tests.topics import read_to_end, write
from tests.two_racks import two_racks
from tests.waiting import LONG

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.assignment import HighAvailabilityTaskAssignor
from sparkrelay.types import TopicPartition

from .conftest import active

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


@pytest.fixture
def brokers(tmp_path):
    """Two brokers; `orders` has two partitions in rack a and two in rack b."""
    from confluent_kafka.admin import AdminClient, NewTopic

    with two_racks(tmp_path / "second") as (first, _second):
        admin = AdminClient({"bootstrap.servers": first.bootstrap_servers})
        placed = {"orders": [[1], [1], [2], [2]], "counts": [[1]]}
        made = admin.create_topics(
            [NewTopic(name, num_partitions=len(at), replica_assignment=at) for name, at in placed.items()]
        )
        for future in made.values():
            future.result(LONG)
        yield first.bootstrap_servers


@pytest.mark.long
def test_tasks_run_in_the_racks_of_their_partitions(brokers, instance, tmp_path, wait_until):
    builder = StreamsBuilder()
    rows = builder.stream("orders", key=String("user"), value=Json("n int"))
    rows.groupBy("user").count(name="counts").to("counts", value=Json())
    streams = {}
    for rack in "ab":
        settings = {
            "bootstrap.servers": brokers,
            "state.dir": str(tmp_path / rack),
            "client.rack": rack,
            "rack.aware.assignment.strategy": "min_traffic",
        }
        streams[rack] = instance(builder, settings)
        streams[rack].start()
    # By the ids of the processes alone, each would have one task of either rack.
    home = {"a": {"0_0", "0_1"}, "b": {"0_2", "0_3"}}
    wait_until(
        lambda: {rack: active(one) for rack, one in streams.items()} == home, "tasks are not where they are read"
    )
    write(brokers, "orders", [{"key": f"u{n}", "value": {"n": n}, "partition": n % 4} for n in range(40)])

    def counted():
        return {m.key().decode(): json.loads(m.value())["count"] for m in read_to_end(brokers, "counts")}

    wait_until(lambda: counted() == {f"u{n}": 1 for n in range(40)}, "not every row is counted once")
