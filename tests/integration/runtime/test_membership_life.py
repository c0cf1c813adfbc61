"""Pausing, replacing a thread, ending the whole application, static members, SIGTERM."""

import pytest
from tests.integration.runtime.trapped_counts import counting
from tests.waiting import LONG

from .conftest import active

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

EVERYTHING = {"0_0", "0_1"}


@pytest.fixture
def topics(make_topic):
    return make_topic("orders", 2), make_topic("counts", 2)


@pytest.fixture
def users():
    return [f"user{n}" for n in range(40)]


def expected(users, count):
    return {user.encode(): {"user": user, "count": count} for user in users}


def batches(streams):
    """Return the reports of micro-batches: standbys and restores are reported too, without input."""
    return [report for report in streams.recentProgress if report["numInputRows"]]


@pytest.mark.long
def test_a_paused_instance_keeps_its_tasks_and_leaves_its_input(
    instance, topics, users, produce, wait_for_table, wait_until, table
):
    streams = instance(counting(topics))
    streams.start()
    produce(topics[0], [(user, {"n": 1}) for user in users])
    wait_for_table(topics[1], expected(users, 1), streams)
    streams.pause()
    assert streams.is_paused
    before = len(batches(streams))
    produce(topics[0], [(user, {"n": 1}) for user in users])
    # A batch that began before the pause may end after it; a member that joins meanwhile is served.
    other = instance(counting(topics))
    other.pause()
    other.start()
    wait_until(lambda: len(active(streams)) == len(active(other)) == 1, "the tasks are not shared")
    assert len(batches(streams)) <= before + 1
    assert not batches(other)
    assert table(topics[1]) == expected(users, 1)
    other.resume()
    streams.resume()
    assert not streams.is_paused
    wait_for_table(topics[1], expected(users, 2), streams, other)


@pytest.mark.long
@pytest.mark.parametrize("answer", ["replace-thread", "StreamThreadExceptionResponse.REPLACE_THREAD"])
def test_a_dead_thread_is_replaced(instance, topics, users, produce, wait_for_table, wait_until, tmp_path, answer):
    from sparkrelay import StreamThreadExceptionResponse

    trap = tmp_path / "trap"
    trap.touch()
    streams = instance(counting(topics, trap), {"max.batch.retries": 0})
    deaths = []

    def handler(error):
        deaths.append(str(error))
        if len(deaths) == 2:
            trap.unlink()
        return answer if answer == "replace-thread" else StreamThreadExceptionResponse.REPLACE_THREAD

    streams.set_uncaught_exception_handler(handler)
    streams.start()
    produce(topics[0], [(user, {"n": 1}) for user in [*users, "mouse"]])
    wait_for_table(topics[1], expected([*users, "mouse"], 1), streams)
    assert len(deaths) == 2
    assert "trapped" in deaths[0]
    wait_until(lambda: streams.state == "RUNNING", "the instance does not run")
    assert streams.exception() is None
    produce(topics[0], [(user, {"n": 1}) for user in users])
    wait_for_table(topics[1], {**expected(users, 2), **expected(["mouse"], 1)}, streams)


@pytest.mark.long
def test_one_of_two_threads_is_replaced_while_the_other_works(
    instance, topics, users, produce, wait_for_table, wait_until, tmp_path
):
    trap = tmp_path / "trap"
    trap.touch()
    streams = instance(counting(topics, trap), {"max.batch.retries": 0, "num.stream.threads": 2})

    def handler(error):
        trap.unlink(missing_ok=True)
        return "replace-thread"

    streams.set_uncaught_exception_handler(handler)
    streams.start()
    wait_until(lambda: active(streams) == EVERYTHING, "the tasks do not run")
    for round_ in range(1, 4):
        produce(topics[0], [(user, {"n": 1}) for user in users])
        if round_ == 2:
            produce(topics[0], [("mouse", {"n": 1})])
        mouse = expected(["mouse"], 1) if round_ >= 2 else {}
        wait_for_table(topics[1], {**expected(users, round_), **mouse}, streams)
    assert not trap.exists()
    wait_until(
        lambda: [len(thread.active_tasks) for thread in streams.metadata_for_local_threads()] == [1, 1],
        "the threads do not share the tasks",
    )


@pytest.mark.long
def test_one_instance_ends_the_whole_application(instance, topics, users, produce, wait_until, tmp_path):
    trap = tmp_path / "trap"
    trap.touch()
    instances = []
    for name in ("first", "second"):
        streams = instance(counting(topics, trap), {"max.batch.retries": 0, "state.dir": str(tmp_path / name)})
        streams.set_uncaught_exception_handler(lambda _: "shutdown-application")
        streams.start()
        instances.append(streams)
    wait_until(lambda: [len(active(streams)) for streams in instances] == [1, 1], "the tasks are not shared")
    produce(topics[0], [("mouse", {"n": 1})])
    wait_until(lambda: [streams.state for streams in instances] == ["ERROR", "ERROR"], "somebody goes on")
    causes = sorted(str(streams.exception()) for streams in instances)
    assert any("trapped" in cause for cause in causes)
    assert any("asked the whole application to shut down" in cause for cause in causes)


@pytest.mark.long
def test_a_static_member_comes_back_without_a_rebalance(
    instance, topics, users, produce, wait_for_table, wait_until, tmp_path
):
    def member(name):
        # Long enough for a restart on the slowest machine.
        return instance(
            counting(topics),
            {"group.instance.id": name, "state.dir": str(tmp_path / name), "session.timeout.ms": 60_000},
        )

    first, second = member("first"), member("second")
    first.start()
    second.start()
    wait_until(lambda: len(active(first)) == len(active(second)) == 1, "the tasks are not shared")
    produce(topics[0], [(user, {"n": 1}) for user in users])
    wait_for_table(topics[1], expected(users, 1), first, second)
    mine, states = active(second), []
    first.set_state_listener(lambda new, _: states.append(new))
    assert second.stop(LONG)
    produce(topics[0], [(user, {"n": 1}) for user in users])
    again = member("second")
    again.start()
    wait_until(lambda: active(again) == mine, "it does not find its tasks")
    wait_for_table(topics[1], expected(users, 2), first, again)
    assert states == [], "the other noticed nothing"
    assert active(first) == EVERYTHING - mine
