"""Stream threads that come and go while records flow (KIP-663): nothing is counted twice, and nothing is left."""

import json
import threading

import pytest
from tests.integration.runtime.trapped_counts import counting
from tests.waiting import LONG

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture
def topics(make_topic):
    return make_topic("orders", 4), make_topic("counts", 4)


class Orders:
    """Writes an order of each user at a time, and knows the counts."""

    def __init__(self, produce, topic):
        self._produce, self._topic = produce, topic
        self.rounds = 0

    def write(self):
        self._produce(self._topic, [(f"user{n}", {"n": 1}) for n in range(40)])
        self.rounds += 1

    def flow(self, until):
        """Write again and again until something has happened."""
        self.write()
        while not until():
            self.write()

    @property
    def counts(self):
        return {f"user{n}".encode(): {"user": f"user{n}", "count": self.rounds} for n in range(40)}


@pytest.fixture
def orders(produce, topics):
    return Orders(produce, topics[0])


def while_flowing(orders, change):
    """Change the number of threads while records flow; return the answer."""
    answers = []
    changing = threading.Thread(target=lambda: answers.append(change()), daemon=True)
    changing.start()
    orders.flow(lambda: not changing.is_alive())
    return answers[0]


def each_update_once(consumed, topic):
    """Assert that every key's counts only grew."""
    last = {}
    for _, _, key, value in consumed(topic):
        count = json.loads(value)["count"]
        assert count > last.get(key, 0), f"{key} says {count} after {last.get(key)}"
        last[key] = count


def threads(streams):
    """Return the numbers of the stream threads, and how many tasks each runs."""
    return {
        int(thread.thread_name.rpartition("-")[2]): sum(task.state == "running" for task in thread.active_tasks)
        for thread in streams.metadata_for_local_threads()
    }


def members(streams):
    """Return the client ids of the group's members, as its coordinator has them."""
    client = streams._context.client("looking")
    try:
        streams._context.connect(client)
        return sorted(streams._context.topics(client).group_clients())
    finally:
        client.close()


def left_of(name):
    """Return the running threads of a stream thread's name."""
    return [thread.name for thread in threading.enumerate() if f"{thread.name}-".startswith(f"{name}-")]


@pytest.mark.long
def test_a_thread_comes_and_goes_while_records_flow(instance, topics, orders, wait_for_table, wait_until, consumed):
    streams = instance(counting(topics))
    # So that the new one's legs are compiled beside the old one's work.
    streams._context.prewarm = True
    streams.start()
    orders.write()
    wait_for_table(topics[1], orders.counts, streams)
    wait_until(lambda: streams.state == "RUNNING", "the instance does not run")
    (first,) = (thread.thread_name for thread in streams.metadata_for_local_threads())

    second = while_flowing(orders, streams.add_stream_thread)
    assert second == first.removesuffix("1") + "2"
    orders.flow(lambda: threads(streams) == {1: 2, 2: 2})
    wait_for_table(topics[1], orders.counts, streams)
    assert members(streams) == [first, second]
    (process,) = streams._processes.all
    assert set(process._clients) == {0, 1}

    assert while_flowing(orders, streams.remove_stream_thread) == second
    assert members(streams) == [first]
    assert (left_of(second), set(process._clients), set(process._plans)) == ([], {0}, {0})
    assert process.target._held <= 1, "the slot of its resident job is free"
    orders.flow(lambda: threads(streams) == {1: 4})
    wait_for_table(topics[1], orders.counts, streams)
    wait_until(lambda: streams.state == "RUNNING", "the instance does not run")

    assert while_flowing(orders, streams.add_stream_thread) == second, "the lowest free number"
    orders.flow(lambda: threads(streams) == {1: 2, 2: 2})
    assert streams.stop(LONG)
    assert left_of(first) == left_of(second) == []
    again = instance(counting(topics))
    again.start()
    wait_for_table(topics[1], orders.counts, again)
    each_update_once(consumed, topics[1])


@pytest.mark.long
def test_an_instance_without_threads_waits_for_one(instance, topics, orders, wait_for_table, wait_until, consumed):
    streams = instance(counting(topics), {"num.stream.threads": 2})
    assert streams.add_stream_thread() is streams.remove_stream_thread() is None, "it is not started"
    states = []
    streams.start()
    orders.write()
    wait_for_table(topics[1], orders.counts, streams)
    wait_until(lambda: streams.state == "RUNNING", "the instance does not run")
    names = [thread.thread_name for thread in streams.metadata_for_local_threads()]
    assert streams.remove_stream_thread() == names[1]
    wait_until(lambda: threads(streams) == {1: 4} and streams.state == "RUNNING", "the other does not take over")
    streams.set_state_listener(lambda new, _: states.append(new))
    assert streams.remove_stream_thread() == names[0]
    assert streams.remove_stream_thread() is None
    assert (streams.metadata_for_local_threads(), members(streams)) == ((), [])
    assert (streams.state, states) == ("RUNNING", [])
    assert "stream threads 0" in repr(streams)
    orders.write()
    assert streams.add_stream_thread() == names[0]
    wait_for_table(topics[1], orders.counts, streams)
    wait_until(lambda: streams.state == "RUNNING", "the instance does not run")
    assert streams.remove_stream_thread() == names[0]
    assert streams.stop(LONG)
    assert streams.state == "NOT_RUNNING"
    assert streams.add_stream_thread() is None
    each_update_once(consumed, topics[1])


@pytest.mark.long
def test_the_tasks_of_a_static_member_do_not_wait_for_it(instance, topics, orders, wait_for_table, wait_until):
    streams = instance(
        counting(topics), {"num.stream.threads": 2, "group.instance.id": "host", "session.timeout.ms": 300_000}
    )
    streams.start()
    orders.write()
    wait_until(lambda: threads(streams) == {1: 2, 2: 2}, "the threads do not share the tasks")
    wait_for_table(topics[1], orders.counts, streams)
    first, second = (thread.thread_name for thread in streams.metadata_for_local_threads())
    assert streams.remove_stream_thread() == second
    assert members(streams) == [first], "the broker does not wait for the other any more"
    wait_until(lambda: threads(streams) == {1: 4}, "the other does not take over")
    orders.write()
    wait_for_table(topics[1], orders.counts, streams)
    assert streams.add_stream_thread() == second
    wait_until(lambda: threads(streams) == {1: 2, 2: 2}, "the threads do not share the tasks")


@pytest.mark.long
def test_a_thread_that_dies_and_is_removed_has_no_successor(
    instance, topics, orders, produce, wait_for_table, wait_until, tmp_path
):
    trap = tmp_path / "trap"
    trap.touch()
    streams = instance(counting(topics, trap), {"max.batch.retries": 0})
    removed = []

    def handler(_):
        # It is the last one, so it removes itself, and nobody waits.
        removed.append(streams.remove_stream_thread())
        return "replace-thread"

    streams.set_uncaught_exception_handler(handler)
    streams.start()
    orders.write()
    wait_for_table(topics[1], orders.counts, streams)
    (name,) = (thread.thread_name for thread in streams.metadata_for_local_threads())
    produce(topics[0], [("mouse", {"n": 1})])
    wait_until(lambda: streams.metadata_for_local_threads() == (), "it does not go")
    assert removed == [name]
    assert streams.isActive
    trap.unlink()
    assert streams.add_stream_thread() == name
    wait_for_table(topics[1], {**orders.counts, b"mouse": {"user": "mouse", "count": 1}}, streams)


@pytest.mark.long
def test_threads_that_die_again_and_again_can_be_removed(
    instance, topics, orders, produce, wait_for_table, wait_until, consumed, tmp_path
):
    trap = tmp_path / "trap"
    trap.touch()
    streams = instance(counting(topics, trap), {"max.batch.retries": 0, "num.stream.threads": 2})
    deaths = []
    streams.set_uncaught_exception_handler(lambda error: deaths.append(error) or "replace-thread")
    streams.start()
    orders.write()
    wait_for_table(topics[1], orders.counts, streams)
    first, second = (thread.thread_name for thread in streams.metadata_for_local_threads())
    produce(topics[0], [("mouse", {"n": 1})])
    # Whoever gets the mouse's task dies; in the end each waits for a successor, becomes one, or dies just now.
    wait_until(lambda: len(deaths) >= 3, "nobody dies")
    assert streams.remove_stream_thread() == second
    assert streams.remove_stream_thread() == first
    assert (streams.metadata_for_local_threads(), left_of(first), left_of(second)) == ((), [], [])
    trap.unlink()
    assert streams.add_stream_thread() == first
    orders.write()
    wait_for_table(topics[1], {**orders.counts, b"mouse": {"user": "mouse", "count": 1}}, streams)
    assert streams.exception() is None
    each_update_once(consumed, topics[1])


@pytest.mark.long
def test_a_stop_does_not_wait_for_threads_that_come_and_go(
    instance, topics, orders, wait_for_table, wait_until, monkeypatch
):
    streams = instance(counting(topics), {"num.stream.threads": 2})
    streams.start()
    orders.write()
    wait_for_table(topics[1], orders.counts, streams)
    compiling, stopped, answers = threading.Event(), threading.Event(), []
    plans = streams._context.plans

    def compile_until_stopped(target):
        compiling.set()
        assert stopped.wait(LONG)
        return plans(target)

    monkeypatch.setattr(streams._context, "plans", compile_until_stopped)
    changing = [
        threading.Thread(target=lambda change=change: answers.append(change()), daemon=True)
        for change in (streams.add_stream_thread, streams.remove_stream_thread)
    ]
    for thread in changing:
        thread.start()
    assert compiling.wait(LONG)
    assert not streams.stop(0)
    stopped.set()
    assert streams.stop(LONG)
    for thread in changing:
        thread.join(LONG)
    assert not any(thread.is_alive() for thread in changing)
    assert None in answers, "none was added"
    assert streams.state == "NOT_RUNNING"
    assert streams.exception() is None
    wait_until(lambda: left_of(streams._config.application_id) == [], "threads are left")
