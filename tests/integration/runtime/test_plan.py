"""`sparkrelay plan` on a live group: it names the process and says what one more instance would take over."""

import json
import time

import pytest

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.cli import app as command_line

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture
def ask(kafka, capsys):
    """`ask(application_id, *options)` returns exit code, standard output and standard error of the command."""

    def run(application_id, *options):
        code = command_line.run(
            ["plan", "--bootstrap-servers", kafka.bootstrap_servers, "--application-id", application_id, *options]
        )
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def counting(source, sink):
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("user"), value=Json("shop string"))
    stream.groupBy("shop", name="shops").count().to(sink)
    return builder


def test_what_one_more_instance_would_take_over(instance, application_id, make_topic, produce, wait_for_table, ask):
    source, sink = make_topic("orders", 4), make_topic("counts", 4)
    produce(source, [(f"u{n}", {"shop": f"s{n % 7}"}) for n in range(70)])
    # The plan asks the group's own assignor, which it finds in the group.
    streams = instance(
        counting(source, sink),
        {"task.assignor.class": "sparkrelay.assignment:LeastMovementTaskAssignor"},
        quiet=True,  # what is on standard error below is the command's
    )
    streams.start()
    wait_for_table(sink, {f"s{n}".encode(): {"shop": f"s{n}", "count": 10} for n in range(7)}, streams)
    # One part reads the source and writes the repartition topic, the other counts: 8 tasks, 4 with state.
    tasks = sorted(f"{part}_{partition}" for part in (0, 1) for partition in range(4))

    assert repr(streams).startswith(f"<KafkaStreams {application_id!r} RUNNING: stream threads 1, active tasks 8, ")

    code, out, err = ask(application_id, "--json")
    assert (code, err) == (0, "")
    (process,) = json.loads(out)["processes"]
    assert process["before"] == process["after"] == {"active": tasks, "standby": []}
    assert json.loads(out)["moved_tasks"] == []

    # Lag 0 is acceptable: then even these few records have to be warmed up.
    code, out, _ = ask(application_id, "--add", "1", "--acceptable-lag", "0", "--json", "--restore-rate", "10")
    planned = json.loads(out)
    old, new = sorted(planned["processes"], key=lambda one: one["added"])
    assert code == 0
    assert old["process"] == process["process"]
    assert len(old["after"]["active"]) == len(new["after"]["active"]) == 4
    assert planned["moved_tasks"] == new["after"]["active"]
    assert planned["pauses"] == []
    stateful = [task for task in new["after"]["active"] if task.startswith("1_")]
    warmed = {d["task"]: d["lag"] for one in planned["rounds"] for d in one["decisions"] if d["kind"] == "WARM_UP"}
    assert warmed.keys() <= set(stateful)
    assert sum(warmed.values()) == planned["restore"]["records"] > 0
    assert planned["seconds_until_warm"] == pytest.approx(sum(warmed.values()) / 10)

    code, out, _ = ask(application_id, "--add", "1", "--acceptable-lag", "0")
    assert code == 0
    assert process["process"][:8] in out
    assert "warms up on new-1" in out
    code, out, _ = ask(application_id, "--add", "1", "--assignor", "sparkrelay.assignors:ElasticsearchTaskAssignor")
    assert (code, "warms up" in out) == (0, False)
    code, _, err = ask(application_id, "--remove", process["process"][:8])
    assert code == 2
    assert "no process would be left" in err


@pytest.mark.long
def test_groups_that_cannot_be_planned_for(kafka, make_topic, ask, wait_until):
    from confluent_kafka import Consumer

    code, _, err = ask("no-such-application")
    assert (code, err.count("\n")) == (2, 1)
    assert "there is no group 'no-such-application'" in err

    topic, name = make_topic("plain", 1), f"plain-{time.time_ns()}"
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": name})
    consumer.subscribe([topic])
    try:
        wait_until(lambda: consumer.poll(0.1) is None and consumer.assignment(), "the consumer has no partition")
        code, _, err = ask(name)
    finally:
        consumer.close()
    assert code == 2
    assert f"group {name!r} is not a streams application: its protocol is 'range'" in err
    code, _, err = ask(name)
    assert code == 2
    assert f"no instance of application {name!r} runs" in err or f"there is no group {name!r}" in err
