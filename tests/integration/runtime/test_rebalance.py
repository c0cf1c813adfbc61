"""Micro-batches that take long while the group changes: they are waited for, but not for ever, and not by all."""

import json
import logging
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.records.partition import murmur2_partitions

from .conftest import active

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

EVERYTHING = {"0_0", "0_1"}


class Gate:
    """Holds up rows of users whose name begins with `slow`, in whichever worker, as long as it is closed."""

    def __init__(self, folder):
        self._closed, self._reached = folder / "closed", folder / "reached"
        self._reached.mkdir()
        self._closed.touch()

    def open(self):
        self._closed.unlink(missing_ok=True)

    def reached(self):
        """Who stood before it: one entry for each user and try."""
        return {path.name.split(" ")[0] for path in self._reached.iterdir()}

    def udf(self):
        closed, reached = str(self._closed), str(self._reached)

        @F.udf("string")
        def pass_through(user):
            if user.startswith("slow"):
                Path(reached, f"{user} {os.getpid()} {time.monotonic_ns()}").touch()
                while Path(closed).exists():
                    time.sleep(0.02)
            return user

        return pass_through


@pytest.fixture
def gate(tmp_path):
    folder = tmp_path / "gate"
    folder.mkdir()
    gate = Gate(folder)
    yield gate
    gate.open()


@pytest.fixture
def topics(make_topic):
    return make_topic("orders", 2), make_topic("counts", 2)


@pytest.fixture
def slow_users():
    """A slow user in each partition: (name, name)."""
    names = [f"slow{n}" for n in range(100)]
    partitions = list(murmur2_partitions(pa.array(names, pa.binary()), 2))
    return tuple(names[partitions.index(number)] for number in range(2))


def counting(topics, gate, *, after_the_state=False):
    builder = StreamsBuilder()
    stream = builder.stream(topics[0], key=String("user"), value=Json("n int"))
    passing = gate.udf()
    if after_the_state:
        stream.groupBy("user", name="users").count().to_stream().where(passing("user") == F.col("user")).to(topics[1])
    else:
        stream.where(passing("user") == F.col("user")).groupBy("user", name="users").count().to(topics[1])
    return builder


def standbys(streams):
    return {task.task_id for thread in streams.metadata_for_local_threads() for task in thread.standby_tasks}


def expected(counts):
    return {user.encode(): {"user": user, "count": count} for user, count in counts.items()}


def updates(consumed, topic):
    """Every output: a key's counts, in order."""
    said = {}
    for _, _, key, value in consumed(topic):
        said.setdefault(key.decode(), []).append(json.loads(value)["count"])
    return said


@pytest.mark.long
def test_a_batch_may_take_longer_than_a_poll_may(
    instance, topics, gate, slow_users, produce, wait_for_table, wait_until
):
    states = []
    streams = instance(counting(topics, gate), {"max.poll.interval.ms": 6000, "session.timeout.ms": 6000})
    streams.set_state_listener(lambda new, _: states.append(new))
    streams.start()
    wait_until(lambda: active(streams) == EVERYTHING, "the tasks do not run")
    produce(topics[0], [(slow_users[0], {"n": 1}), ("other", {"n": 1})])
    wait_until(gate.reached, "no batch began")
    time.sleep(12)  # twice of either: there is nothing else to wait for
    gate.open()
    wait_for_table(topics[1], expected({slow_users[0]: 1, "other": 1}), streams)
    assert states == ["REBALANCING", "RUNNING"], "it stayed a member all the time"


@pytest.mark.long
def test_a_newcomer_gets_its_standbys_while_a_batch_is_under_way(
    instance, topics, gate, slow_users, produce, wait_for_table, wait_until, consumed, tmp_path
):
    # The new process holds nothing, so that nothing is revoked until it has caught up; and nobody asks for that then,
    # so that it keeps both its standbys.
    settings = {"num.standby.replicas": 1, "acceptable.recovery.lag": 0, "follow.up.when.caught.up": False}
    produce(topics[0], [(f"user{n}", {"n": 1}) for n in range(50)])
    first = instance(counting(topics, gate), {**settings, "state.dir": str(tmp_path / "first")})
    first.start()
    wait_for_table(topics[1], expected({f"user{n}": 1 for n in range(50)}), first)
    produce(topics[0], [(slow_users[0], {"n": 1})])
    wait_until(gate.reached, "no batch began")
    second = instance(counting(topics, gate), {**settings, "state.dir": str(tmp_path / "second")})
    second.start()
    wait_until(lambda: standbys(second) == EVERYTHING, "the rebalance waits for the batch", 120)
    assert active(first) == EVERYTHING
    gate.open()
    wait_for_table(topics[1], expected({**{f"user{n}": 1 for n in range(50)}, slow_users[0]: 1}), first, second)
    assert all(said == [1] for said in updates(consumed, topics[1]).values())


def test_a_task_that_leaves_has_its_batch_finished(
    instance, topics, gate, slow_users, produce, wait_for_table, wait_until, consumed, tmp_path, caplog
):
    caplog.set_level(logging.INFO, logger="sparkrelay.runtime")
    first = instance(counting(topics, gate), {"state.dir": str(tmp_path / "first")})
    # Written before the start, so that one batch has both.
    produce(topics[0], [(user, {"n": 1}) for user in slow_users])
    first.start()
    wait_until(lambda: gate.reached() == set(slow_users), "no batch began")
    second = instance(counting(topics, gate), {"state.dir": str(tmp_path / "second")})
    second.start()
    wait_until(lambda: "waiting for the micro-batch of tasks" in caplog.text, "nothing is revoked", 120)
    assert not active(second)
    gate.open()
    wait_until(lambda: len(active(second)) == 1, "the second does not get its task")
    wait_for_table(topics[1], expected(dict.fromkeys(slow_users, 1)), first, second)
    assert updates(consumed, topics[1]) == {user: [1] for user in slow_users}


@pytest.mark.long
@pytest.mark.parametrize("after_the_state", [False, True], ids=["before its state", "behind its state"])
def test_a_batch_that_holds_a_rebalance_up_is_cancelled_and_undone(
    instance,
    topics,
    gate,
    slow_users,
    produce,
    wait_for_table,
    wait_until,
    consumed,
    tmp_path,
    caplog,
    after_the_state,
):
    caplog.set_level(logging.WARNING, logger="sparkrelay.runtime")
    settings = {"max.poll.interval.ms": 30_000}
    first = instance(
        counting(topics, gate, after_the_state=after_the_state), {**settings, "state.dir": str(tmp_path / "first")}
    )
    # Written before the start, so that one batch has both.
    produce(topics[0], [(user, {"n": 1}) for user in slow_users])
    first.start()
    wait_until(lambda: gate.reached() == set(slow_users), "no batch began")
    second = instance(
        counting(topics, gate, after_the_state=after_the_state), {**settings, "state.dir": str(tmp_path / "second")}
    )
    second.start()
    wait_until(lambda: "cancelling and undoing it" in caplog.text, "it waits for ever", 120)
    gate.open()
    wait_until(lambda: len(active(second)) == 1 and len(active(first)) == 1, "the second does not get its task", 120)
    wait_for_table(topics[1], expected(dict.fromkeys(slow_users, 1)), first, second)
    assert updates(consumed, topics[1]) == {user: [1] for user in slow_users}
    assert [first.exception(), second.exception()] == [None, None]


@pytest.mark.long
def test_a_revocation_waits_for_no_batch_of_other_tasks(
    instance, make_topic, topics, gate, slow_users, produce, wait_for_table, wait_until, consumed, tmp_path
):
    """Another application's batch has every core, so that nothing of ours gets one, not even to close stores."""
    passing = gate.udf()
    builder = StreamsBuilder()
    source, sink = make_topic("slow", 2), make_topic("passed", 2)
    builder.stream(source, key=String("user"), value=Json("n int")).where(passing("user") == F.col("user")).to(sink)
    hog = {"application.id": f"hog-{tmp_path.name}", "transaction.timeout.ms": 600_000}
    other = instance(builder, {**hog, "state.dir": str(tmp_path / "hog")})

    builder = StreamsBuilder()
    builder.stream(topics[0], key=String("user"), value=Json("n int")).groupBy("user", name="users").count().to(
        topics[1]
    )
    first = instance(builder, {"state.dir": str(tmp_path / "first")})
    second = instance(builder, {"state.dir": str(tmp_path / "second")})
    users = {f"user{n}": 1 for n in range(20)}
    produce(topics[0], [(user, {"n": 1}) for user in users])
    first.start()
    wait_for_table(topics[1], expected(users), first)
    produce(source, [(user, {"n": 1}) for user in slow_users])
    other.start()
    wait_until(lambda: gate.reached() == set(slow_users), "the other application's batch did not begin")
    second.start()
    wait_until(lambda: len(active(first)) == 1, "the revocation waits for the other's batch", 120)
    assert not consumed(sink), "the other's batch is still under way"
    gate.open()
    wait_until(lambda: len(active(second)) == 1, "the second does not get its task")
    produce(topics[0], [(user, {"n": 1}) for user in users])
    wait_for_table(topics[1], expected(dict.fromkeys(users, 2)), first, second)
    assert updates(consumed, topics[1]) == {user: [1, 2] for user in users}
    assert [streams.exception() for streams in (first, second, other)] == [None, None, None]
