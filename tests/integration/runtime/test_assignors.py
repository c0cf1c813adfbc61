"""Task assignors of a live group: one that fails ends every member, or keeps its tasks; what it wants to see again."""

import asyncio
import datetime as dt
import threading

import pytest
from tests.waiting import LONG

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.assignment import (
    HighAvailabilityTaskAssignor,
    KafkaStreamsAssignment,
    TaskAssignment,
    task_assignment_utils,
)
from sparkrelay.errors import StreamsException, TaskAssignmentException

from .conftest import active

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

PARTITIONS = 4


def counting(source, sink):
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("user"), value=Json("shop string"))
    stream.groupBy("user", name="users").count().to(sink)
    return builder


class Scripted(HighAvailabilityTaskAssignor):
    """Does what the test says, one thing a rebalance, and after that what the high-availability assignor does."""

    script = ()
    seen = ()

    def assign(self, application_state):
        turn = len(type(self).seen)
        type(self).seen = (*self.seen, application_state)
        step = self.script[turn] if turn < len(self.script) else None
        return super().assign(application_state) if step is None else step(application_state)


@pytest.fixture
def scripted():
    """`scripted(step, ...)` makes an assignor class of its own; a step takes the state, None is a usual answer."""

    def make(*steps):
        return type("OfThisTest", (Scripted,), {"script": steps, "__module__": __name__})

    return make


@pytest.fixture
def topics(make_topic):
    return make_topic("orders", PARTITIONS), make_topic("counts", 1)


@pytest.fixture
def start(instance, topics, tmp_path):
    """`start(name, assignor, **settings)` starts an instance; `.failures` and `.states` are what it reported."""

    def make(name, assignor, settings=None):
        folder = {"state.dir": str(tmp_path / name)}
        streams = instance(counting(*topics), {"task.assignor.class": assignor, **folder, **(settings or {})})
        streams.failures, streams.states = [], []
        streams.set_uncaught_exception_handler(streams.failures.append)
        streams.set_state_listener(lambda new, _old: streams.states.append(new))
        streams.start()
        return streams

    return make


def raising(error):
    def step(_state):
        raise error

    return step


def causes(error):
    while error is not None:
        yield error
        error = error.__cause__


def nonsense(state):
    return TaskAssignment([KafkaStreamsAssignment(process, ["0_0"]) for process in state.clients])


def nobody(_state):
    return TaskAssignment([])


@pytest.mark.parametrize(
    ("step", "message", "cause"),
    [
        (raising(ZeroDivisionError("oh")), "OfThisTest failed: ZeroDivisionError: oh", ZeroDivisionError),
        (raising(SystemExit(4)), "OfThisTest failed: SystemExit: 4", SystemExit),
        (raising(asyncio.CancelledError()), "OfThisTest failed: CancelledError", asyncio.CancelledError),
        (lambda _state: "all to me", "returned 'all to me' instead of a TaskAssignment", TypeError),
        (nonsense, "they must map TaskIds to AssignedTasks", TypeError),
        (nobody, "gave an invalid assignment: MISSING_PROCESS_ID", StreamsException),
    ],
    ids=["raises", "exits", "is cancelled", "text", "entries of nonsense", "forgets processes"],
)
def test_an_instance_whose_assignor_fails_ends_with_the_cause(start, scripted, wait_until, step, message, cause):
    streams = start("one", scripted(step))
    wait_until(lambda: streams.state == "ERROR", "the instance goes on")
    with pytest.raises(StreamsException) as ended:
        streams.awaitTermination(LONG)  # until the listener was notified too
    assert streams.states == ["REBALANCING", "PENDING_ERROR", "ERROR"]
    (failures,) = streams.failures
    assert failures is ended.value is streams.exception()
    assert message in str(failures)
    assert any(isinstance(error, cause) for error in causes(failures)), list(causes(failures))


@pytest.mark.long
def test_both_members_learn_of_a_failing_assignor(start, scripted, wait_until):
    assignor = scripted(None)
    first = start("first", assignor)
    wait_until(lambda: first.state == "RUNNING", "the first instance does not run")
    assignor.script = [None] * len(assignor.seen) + [raising(ZeroDivisionError("oh"))] * 10
    second = start("second", assignor)
    wait_until(lambda: first.state == second.state == "ERROR", "an instance goes on")
    for streams in (first, second):
        (failures,) = streams.failures
        assert isinstance(failures, StreamsException)
        assert "OfThisTest failed: ZeroDivisionError: oh" in str(failures)


@pytest.mark.long
def test_an_assignor_that_never_answers_is_not_waited_for(start, scripted, wait_until):
    go = threading.Event()
    assignor = scripted(None)
    settings = {"max.poll.interval.ms": 6000}
    first = start("first", assignor, settings)
    wait_until(lambda: first.state == "RUNNING", "the first instance does not run")
    assignor.script = [None] * len(assignor.seen) + [lambda _state: go.wait(100)] * 10
    try:
        second = start("second", assignor, settings)
        wait_until(lambda: first.state == second.state == "ERROR", "an instance goes on", 90)
    finally:
        go.set()
    for streams in (first, second):
        (failures,) = streams.failures
        assert isinstance(failures, StreamsException)
        assert "OfThisTest did not answer within 3 s" in str(failures)


@pytest.mark.long
def test_an_assignor_that_is_not_ready_keeps_the_assignment_and_is_asked_again_at_once(
    start, scripted, wait_until, topics, produce, wait_for_table
):
    assignor = scripted()
    everything = {f"0_{n}" for n in range(PARTITIONS)}
    first = start("first", assignor)
    wait_until(lambda: active(first) == everything, "the first instance does not run")
    calls = len(assignor.seen)
    assignor.script = [None] * calls + [raising(TaskAssignmentException("not ready"))] * 2
    second = start("second", assignor)
    wait_until(
        lambda: len(active(first)) == len(active(second)) == 2 and active(first) | active(second) == everything,
        "the two do not share the tasks",
    )
    # Both times it was not ready, nobody lost a task: the next time all are where they were.
    for state in assignor.seen[calls : calls + 3]:
        held = sorted(sorted(map(str, client.previous_active_tasks)) for client in state.clients.values())
        assert held == [[], sorted(everything)]
    produce(topics[0], [(f"u{n}", {"shop": "s"}) for n in range(40)])
    wait_for_table(topics[1], {f"u{n}".encode(): {"user": f"u{n}", "count": 1} for n in range(40)}, first, second)
    assert first.failures == second.failures == []


@pytest.mark.long
def test_a_group_whose_assignor_was_not_ready_at_first_works(start, scripted, wait_until):
    assignor = scripted(*[raising(TaskAssignmentException("not ready"))] * 2)
    streams = start("one", assignor)
    wait_until(lambda: len(active(streams)) == PARTITIONS, "the instance does not run")
    assert len(assignor.seen) >= 3
    assert streams.failures == []


# Looking again


@pytest.mark.long
def test_a_member_asks_for_a_rebalance_at_the_deadline_that_the_assignor_gave_it(start, scripted, wait_until):
    looks = []  # when it is to look again, and when it looked

    def later(state):
        """Let everything be as it was; the newcomer is to look again in two seconds."""
        looks.append(dt.datetime.now(dt.UTC) + dt.timedelta(seconds=2))
        kept = task_assignment_utils.identity_assignment(state)
        (newcomer,) = (process for process, entry in kept.items() if not entry.tasks)
        return TaskAssignment([*kept.values(), kept[newcomer].with_followup_rebalance(looks[0])])

    def again(state):
        looks.append(dt.datetime.now(dt.UTC))
        return HighAvailabilityTaskAssignor().assign(state)

    assignor = scripted(None)
    first = start("first", assignor)
    wait_until(lambda: len(active(first)) == PARTITIONS, "the first instance does not run")
    assignor.script = [None] * len(assignor.seen) + [later, again]
    second = start("second", assignor)
    wait_until(lambda: len(looks) == 2, "nobody looks again")
    wait_until(lambda: len(active(first)) == len(active(second)) == 2, "the two do not share the tasks")
    deadline, looked = looks
    assert looked >= deadline


@pytest.mark.long
def test_warm_ups_are_looked_at_by_the_clock(start, topics, produce, wait_until, wait_for_table, monkeypatch, caplog):
    """Where copies that catch up are no reason of their own to look again, as in Kafka Streams."""
    caplog.set_level("INFO", logger="sparkrelay")
    # Users may have 60 s or more.
    for module in ("config", "assignment.assignment_configs"):
        monkeypatch.setattr(f"sparkrelay.{module}.check", lambda _: None)
    users = [f"u{n}" for n in range(200)]
    produce(topics[0], [(user, {"shop": "s"}) for user in users])
    settings = {
        "acceptable.recovery.lag": 10,
        "follow.up.when.caught.up": False,
        "probing.rebalance.interval.ms": 2000,
    }
    first = start("first", HighAvailabilityTaskAssignor, settings)
    expected = {user.encode(): {"user": user, "count": 1} for user in users}
    wait_for_table(topics[1], expected, first)
    second = start("second", HighAvailabilityTaskAssignor, settings)
    wait_until(lambda: len(active(first)) == len(active(second)) == 2, "no warm task has moved")
    assert "the follow-up rebalance is due" in caplog.text
    assert "are warm: requesting" not in caplog.text
