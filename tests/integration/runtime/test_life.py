"""Restarts, lost state, and two instances that share the work."""

import json

import pytest
from tests.waiting import LONG, remove_folder

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.runtime.topics.topics import Topics

from .conftest import wait_for_every_job

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def counting(source, sink):
    """Count orders by user, and by shop behind a repartition topic."""
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("user"), value=Json("shop string"))
    stream.groupBy("user", name="users").count().to(sink)
    stream.groupBy("shop", name="shops").count().to(sink)
    return builder


class Orders:
    """Writes orders and knows the counts."""

    def __init__(self, produce, topic):
        self._produce, self._topic, self._number = produce, topic, 0
        self.counts = {}

    def write(self, count):
        rows = []
        for _ in range(count):
            user, shop = f"u{self._number % 11}", f"s{self._number % 4}"
            self._number += 1
            rows.append((user, {"shop": shop}))
            for kind, name in (("user", user), ("shop", shop)):
                before = self.counts.get(name.encode(), {"count": 0})["count"]
                self.counts[name.encode()] = {kind: name, "count": before + 1}
        self._produce(self._topic, rows)


@pytest.fixture
def topics(make_topic):
    return make_topic("orders", 2), make_topic("counts", 2)


@pytest.fixture
def orders(produce, topics):
    return Orders(produce, topics[0])


def each_update_once(consumed, topic):
    """Assert that every key's counts only grew."""
    last = {}
    for _, _, key, value in consumed(topic):
        count = json.loads(value)["count"]
        assert count > last.get(key, 0), f"{key} says {count} after {last.get(key)}"
        last[key] = count


@pytest.mark.parametrize("lost", [False, True], ids=["with its state", "its state lost"])
def test_a_restart_goes_on_exactly(lost, instance, topics, orders, wait_for_table, consumed, tmp_path, wait_until):
    orders.write(100)
    states = []
    first = instance(counting(*topics), {"max.batch.records": 20})
    first.set_state_listener(lambda new, old: states.append((old, new)))
    assert first.state == "CREATED"
    with first:
        first.start()
        wait_for_table(topics[1], orders.counts, first)
        wait_until(lambda: first.state == "RUNNING", "the instance does not run")
        assert first.isActive
    assert states[0] == ("CREATED", "REBALANCING")
    assert states[-2:] == [("RUNNING", "PENDING_SHUTDOWN"), ("PENDING_SHUTDOWN", "NOT_RUNNING")]
    assert not first.isActive
    assert first.exception() is None
    assert first.awaitTermination(0)

    if lost:
        remove_folder(tmp_path / "state")
    orders.write(60)
    second = instance(counting(*topics), {"max.batch.records": 20})
    second.start()
    wait_for_table(topics[1], orders.counts, second)
    orders.write(40)
    wait_for_table(topics[1], orders.counts, second)
    each_update_once(consumed, topics[1])


def test_an_idle_instance_runs_no_jobs(instance, topics, orders, wait_for_table, wait_until, spark, monkeypatch):
    looks, wait = [], Topics.await_records
    monkeypatch.setattr(Topics, "await_records", lambda *args, **more: looks.append(1) or wait(*args, **more))
    orders.write(20)
    streams = instance(counting(*topics))
    streams.start()
    wait_for_table(topics[1], orders.counts, streams)
    wait_until(lambda: not any(streams.input_lags.values()), "the input is not drained")
    batches = len(streams.recentProgress)
    (thread,) = (one.thread_name for one in streams.metadata_for_local_threads())

    def jobs():
        wait_for_every_job(spark)
        return set(spark.sparkContext._jsc.sc().statusTracker().getJobIdsForTag(thread))

    before = jobs()
    assert before
    looked = len(looks)
    wait_until(lambda: len(looks) >= looked + 5, "the thread does not look for input")
    assert len(streams.recentProgress) == batches
    assert jobs() == before


@pytest.mark.long
def test_a_backlog_takes_several_batches(instance, topics, orders, wait_for_table):
    orders.write(100)
    streams = instance(counting(*topics), {"max.batch.records": 10, "commit.interval.ms": 400})
    streams.start()
    wait_for_table(topics[1], orders.counts, streams)
    assert len([report for report in streams.recentProgress if report["numInputRows"]]) >= 5


def tasks_of(streams):
    threads = streams.metadata_for_local_threads()
    return (
        {task.task_id for thread in threads for task in thread.active_tasks if task.state == "running"},
        {task.task_id for thread in threads for task in thread.standby_tasks},
    )


def test_two_instances_share_and_the_standby_is_promoted(
    instance, topics, orders, wait_for_table, wait_until, consumed, tmp_path
):
    everything = {"0_0", "0_1", "1_0", "1_1"}
    settings = {"num.standby.replicas": 1, "acceptable.recovery.lag": 1000, "max.batch.records": 50}
    orders.write(100)
    first = instance(counting(*topics), {**settings, "state.dir": str(tmp_path / "first")})
    first.start()
    wait_for_table(topics[1], orders.counts, first)

    second = instance(counting(*topics), {**settings, "state.dir": str(tmp_path / "second")})
    second.start()

    def shared():
        (active, standby), (active_2, standby_2) = tasks_of(first), tasks_of(second)
        return (
            len(active) == len(active_2) == 2
            and active | active_2 == everything
            and standby == active_2
            and standby_2 == active
        )

    wait_until(shared, "the two do not share the tasks")
    orders.write(200)
    wait_for_table(topics[1], orders.counts, first, second)

    assert first.stop(LONG)
    wait_until(lambda: tasks_of(second)[0] == everything, "the second did not take over")
    orders.write(100)
    wait_for_table(topics[1], orders.counts, second)
    each_update_once(consumed, topics[1])


@pytest.mark.long
def test_two_stream_threads_share_one_state_directory(instance, topics, orders, wait_for_table, wait_until, consumed):
    orders.write(100)
    streams = instance(counting(*topics), {"num.stream.threads": 2})
    streams.start()
    wait_until(
        lambda: [len(thread.active_tasks) for thread in streams.metadata_for_local_threads()] == [2, 2],
        "the threads do not share the tasks",
    )
    wait_for_table(topics[1], orders.counts, streams)
    orders.write(100)
    wait_for_table(topics[1], orders.counts, streams)
    each_update_once(consumed, topics[1])
