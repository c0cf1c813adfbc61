"""Nonsense from an assignor: every member is answered, and the leader raises what was wrong, clearly."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt

import pytest
from tests.doubles.assignors import Answers

from sparkrelay.assignment import (
    AssignedTask,
    AssignmentConfigs,
    GroupMember,
    HighAvailabilityTaskAssignor,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskAssignor,
    TaskInfo,
)
from sparkrelay.assignment.leader.group import assign_group
from sparkrelay.assignment.validation import checked_answer
from sparkrelay.errors import StreamsException, TaskAssignmentException
from sparkrelay.protocol import LONG_MAX, AssignmentInfo, ErrorCode, SubscriptionInfo
from sparkrelay.types import ProcessId, TaskId, TopicPartition

ACTIVE = AssignedTask.Type.ACTIVE
ONE, TWO = (ProcessId.parse(f"{number:032x}") for number in (1, 2))
TASK = TaskId(0, 0)


def assign(assignor):
    infos = [
        TaskInfo.of(TASK, inputs=[TopicPartition("in", 0)], changelogs=[TopicPartition("cl", 0)], stores=["store"])
    ]
    members = [
        GroupMember(consumer_id=name, subscription=SubscriptionInfo(process_id=process))
        for name, process in (("one", ONE), ("two", TWO))
    ]
    return assign_group(
        members=members,
        tasks=infos,
        ends={TASK: 100},
        assignor=assignor,
        configs=AssignmentConfigs(),
        leader=ONE,
        now_ms=1_000_000,
    )


def refused(assignor):
    """Return what the leader raises, once it is sure that all members were answered."""
    result = assign(assignor)
    assert {name: sent.info.err_code for name, sent in result.members.items()} == {
        "one": ErrorCode.ASSIGNMENT_ERROR,
        "two": ErrorCode.ASSIGNMENT_ERROR,
    }
    assert [sent.partitions for sent in result.members.values()] == [(), ()]
    assert isinstance(result.failure, StreamsException)
    return str(result.failure)


class UnspeakableError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class SilentKeeper(TaskAssignmentException):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (GeneratorExit(), "GeneratorExit"),
        (asyncio.CancelledError("enough"), "CancelledError: enough"),
        (RecursionError("too deep"), "RecursionError: too deep"),
        (MemoryError(), "MemoryError"),
        (StopIteration(), "StopIteration"),
        (UnspeakableError(), "UnspeakableError"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_is_raised_is_reported_to_all(raised, message):
    assert message in refused(Answers(raised))

    class Late(HighAvailabilityTaskAssignor):
        def on_assignment_computed(self, assignment, subscription, error):
            raise raised

    reported = refused(Late())
    assert message in reported
    assert "on_assignment_computed" in reported


def test_a_real_interrupt_is_not_taken_for_the_assignors():
    with pytest.raises(KeyboardInterrupt):
        assign(Answers(KeyboardInterrupt()))


def test_an_assignor_that_keeps_the_assignment_need_not_say_why():
    result = assign(Answers(SilentKeeper()))
    assert result.failure is None
    assert "SilentKeeper" in result.kept


def test_endless_recursion_is_reported_to_all():
    class Endless(TaskAssignor):
        def assign(self, application_state):
            return self.assign(application_state)

    assert "RecursionError" in refused(Endless())


class TextTask(str):
    __slots__ = ()
    subtopology = partition = 0


def entry(**changed):
    held = {TASK: AssignedTask(TASK, ACTIVE)}
    return dataclasses.replace(KafkaStreamsAssignment(ONE, held), **changed)


def answer(*entries, **changed):
    return TaskAssignment([*entries, KafkaStreamsAssignment.of(TWO, ())], **changed)


def lying(**fields):
    made = TaskAssignment([entry(), KafkaStreamsAssignment.of(TWO, ())])
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def generator():
    yield entry()


def other_id(id_):
    return entry(tasks={id_: AssignedTask(id_, ACTIVE)})


class NoZone(dt.tzinfo):
    def utcoffset(self, _when):
        raise OSError("no such zone")


NONSENSE = {
    "a generator": (generator(), "instead of a TaskAssignment"),
    "a class": (TaskAssignment, "instead of a TaskAssignment"),
    "entries None": (lying(assignment=None), "None"),
    "an entry None": (answer(None), "an entry None"),
    "an entry dict": (answer({ONE: [TASK]}), "KafkaStreamsAssignment"),
    "an endless entry": (answer([1] * 1_000_000), "an entry"),
    "process str": (answer(entry(process_id=str(ONE))), "process_id"),
    "process unhashable": (answer(entry(process_id=[])), "process_id"),
    "tasks list": (answer(entry(tasks=[AssignedTask(TASK, ACTIVE)])), "tasks"),
    "tasks None": (answer(entry(tasks=None)), "tasks"),
    "task id": (answer(entry(tasks={TASK: TASK})), "AssignedTask"),
    "task under another's name": (answer(entry(tasks={TaskId(0, 1): AssignedTask(TASK, ACTIVE)})), "0_1"),
    "id str": (answer(other_id("0_0")), "'0_0'"),
    "id subclass of str": (answer(other_id(TextTask("0_0"))), "'0_0'"),
    "id tuple": (answer(other_id((0, 0))), r"(0, 0)"),
    "id unhashable": (answer(entry(tasks={TASK: AssignedTask([], ACTIVE)})), "[]"),
    "type str": (answer(entry(tasks={TASK: AssignedTask(TASK, "active")})), "'active'"),
    "deadline number": (answer(entry(followup_rebalance_deadline=5)), "followup_rebalance_deadline"),
    "deadline without zone": (answer(entry(followup_rebalance_deadline=dt.datetime(2030, 1, 1))), "time zone"),  # noqa: DTZ001
    "deadline in no zone": (
        answer(entry(followup_rebalance_deadline=dt.datetime(2030, 1, 1, tzinfo=NoZone()))),
        "no such zone",
    ),
    "probing text": (answer(entry(), probing_rebalance="no"), "probing_rebalance"),
    "warm-ups list": (lying(warm_ups=[ONE]), "warm_ups"),
    "warm-ups of a name": (answer(entry(), warm_ups={"one": {TASK}}), "warm_ups"),
    "warm-ups of a number": (answer(entry(), warm_ups={ONE: 3}), "warm_ups"),
    "warm-ups without ids": (answer(entry(), warm_ups={ONE: ["0_0"]}), "warm_ups"),
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_nonsense_is_named_and_reported_to_all(kind):
    given, message = NONSENSE[kind]
    reported = refused(Answers(given))
    assert "Answers" in reported
    assert message in reported
    assert len(reported) < 1_000, "an answer is quoted in full"


@pytest.mark.parametrize(
    ("deadline", "sent_ms"),
    [
        (dt.datetime.min.replace(tzinfo=dt.UTC), 0),
        (dt.datetime(1969, 1, 1, tzinfo=dt.UTC), 0),
        (dt.datetime.max.replace(tzinfo=dt.UTC), 253_402_300_800_000),
        (dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-23))), 253_402_300_800_000 + 23 * 3_600_000),
        (dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=23))), 0),
    ],
)
def test_any_time_is_a_deadline(deadline, sent_ms):
    result = assign(Answers(answer(entry().with_followup_rebalance(deadline))))
    assert result.failure is None
    sent = {name: member.info for name, member in result.members.items()}
    assert (sent["one"].next_rebalance_ms, sent["two"].next_rebalance_ms) == (sent_ms, LONG_MAX)
    assert AssignmentInfo.decode(sent["one"].encode()) == sent["one"]


def test_a_good_answer_is_left_as_it_is():
    good = answer(entry(), probing_rebalance=True, warm_ups={ONE: frozenset({TASK})})
    assert checked_answer(good) is good
