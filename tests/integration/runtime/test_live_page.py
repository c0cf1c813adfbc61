"""The live page of a real group: two instances, whichever is asked shows both, and then the one that is left."""

import json
import urllib.request

import pytest
from pyspark.sql import functions as F
from tests.ports import own_port
from tests.waiting import LONG

from sparkrelay import Json, StreamsBuilder, String

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def windows(source, sink):
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("user"), value=Json("at timestamp"))
    timed = stream.withWatermark("at", "1 minute").groupBy("user", F.window("at", "1 minute"), name="users")
    timed.count().to(sink, value=Json())
    return builder


def group_at(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/group", timeout=LONG) as answer:
        return json.loads(answer.read())


def whole(group, size):
    """Return whether so many instances answer and each task runs."""
    answered = [one for one in group["instances"] if one["problem"] is None]
    return len(answered) == len(group["instances"]) == size and not group["missing"] and answered[0]["view"]["plan"]


@pytest.mark.long
def test_whichever_instance_is_asked_shows_the_whole_group(
    instance, make_topic, produce, wait_until, tmp_path, application_id
):
    topics = make_topic("orders", 2), make_topic("counts", 2)
    ports = [own_port() for _ in range(2)]
    settings = {"num.standby.replicas": 1, "sasl.password": "MARKED", "probing.rebalance.interval.ms": 60_000}
    first, second = (
        instance(
            windows(*topics), {**settings, "metrics.port": port, "state.dir": str(tmp_path / str(port))}
        )
        for port in ports
    )  # fmt: skip
    first.start()
    produce(topics[0], [(f"u{number}", {"at": "2026-01-01T10:00:00Z"}) for number in range(50)])
    second.start()
    for port in ports:
        wait_until(lambda port=port: whole(group_at(port), 2), f"the group is not whole at {port}", 120)
    wait_until(
        lambda: all(
            {task["role"] for task in one["view"]["tasks"]} >= {"active", "standby"}
            and {entry["kind"] for entry in one["view"]["rebalances"]} >= {"assigned", "in service"}
            and any(task["watermarks"] for other in group_at(ports[0])["instances"] for task in other["view"]["tasks"])
            for one in group_at(ports[1])["instances"]
        ),
        "tasks and copies are not spread",
        120,
    )
    group = group_at(ports[1])
    assert group["application"] == application_id
    own, other = group["instances"]
    assert (own["own"], other["own"]) == (True, False)
    assert other["address"] == f"127.0.0.1:{ports[0]}"
    for one in group["instances"]:
        view = one["view"]
        assert view["plan"] == ["0_0", "0_1"]
        assert view["config"]["sasl.password"] == "[hidden]"
        assert view["config"]["num.standby.replicas"] == "1"
        assert all(task["state_bytes"] is not None for task in view["tasks"])
        assert "by-user-window" in " ".join(node["label"] for node in view["graph"]["nodes"])
    decided = [entry for one in group["instances"] for entry in one["view"]["rebalances"] if entry["kind"] == "decided"]
    assert any("joined" in entry["why"] for entry in decided)
    assert any(entry["lines"] for entry in decided)
    marks = {
        mark for one in group["instances"] for task in one["view"]["tasks"] for mark in task["watermarks"].values()
    }
    assert marks == {1767261540000}, "a minute before the newest event"
    assert "MARKED" not in json.dumps(group)
    first.stop()
    wait_until(lambda: whole(group_at(ports[1]), 1), "who left is still shown", 120)
