"""What a member logs of rebalances, and what the leader sends all of them."""

import logging
import uuid

import pytest

from sparkrelay.runtime.group.assignment_log import AssignmentLog, Notice, why
from sparkrelay.types import ProcessId, TaskId

NAME = "app-StreamThread-1"
TWO = Notice(("aaaaaaaa", "bbbbbbbb"), "bbbbbbbb joined")


def tasks(*numbers):
    return {TaskId(0, number) for number in numbers}


@pytest.fixture
def story(caplog):
    caplog.set_level(logging.INFO, logger="sparkrelay.runtime.group.assignment_log")
    took = []
    made = AssignmentLog(NAME, took.append)
    made.took = took
    made.lines = lambda: [record.getMessage().removeprefix(f"{NAME}: ") for record in caplog.records]
    return made


def test_a_notice_says_where_pages_are():
    process = ProcessId(uuid.UUID(int=1))
    notice = Notice.of([process], "it joined", pages={process: "here:9404"})
    assert Notice.decode(notice.encode()).pages == {"00000000": "here:9404"}
    assert Notice.decode(Notice.of([process], "it joined").encode()).pages == {}


def test_a_first_assignment(story):
    story.joins(10.0)
    story.assigned(TWO, 3, tasks(0, 1), tasks(2), 10.5)
    story.in_service(12.0)
    assert story.lines() == [
        (
            "generation 3, 2 processes (aaaaaaaa, bbbbbbbb), because bbbbbbbb joined: "
            "gains 0_0, 0_1; new standby of 0_2; 2 active, 1 standby now"
        ),
        "generation 3: every task in service after 2.000 s: 0.500 s until the assignment, 1.500 s to open 0_0, 0_1",
    ]
    assert story.took == [2.0]


def test_each_kind_of_change(story):
    story.assigned(TWO, 1, tasks(0, 1, 2), tasks(3, 4, 5), 0.0)
    story.in_service(0.0)
    story.joins(1.0)
    story.assigned(TWO, 2, tasks(0, 3, 6), tasks(1, 4, 7), 1.0)
    assert story.lines()[2].split(": ", 2)[1] == (
        "gains 0_6; promotes 0_3; demotes 0_1; gives up 0_2; new standby of 0_7; no standby of 0_5; "
        "3 active, 3 standby now"
    )
    story.in_service(2.0)
    assert story.lines()[3].endswith("to open 0_3, 0_6")


def test_nothing_moves_is_one_line(story):
    story.assigned(TWO, 1, tasks(0), tasks(), 0.0)
    story.in_service(0.0)
    story.joins(5.0)
    story.assigned(TWO, 2, tasks(0), tasks(), 5.1)
    story.in_service(5.1)
    story.in_service(9.0)
    assert len(story.lines()) == 3
    assert story.lines()[2].endswith("bbbbbbbb joined: nothing moves here; 1 active, 0 standby now")
    assert story.took == [0.0, pytest.approx(0.1)]


def test_service_before_an_assignment_is_none(story):
    story.in_service(1.0)
    story.joins(2.0)
    story.in_service(3.0)
    assert story.lines() == []
    assert story.took == []


def test_a_rebalance_that_begins_anew_counts_from_its_first_beginning(story):
    story.joins(0.0)
    story.assigned(TWO, 1, tasks(0, 1), tasks(), 1.0)
    story.joins(2.0)
    story.in_service(2.5)
    story.assigned(TWO, 2, tasks(0), tasks(), 3.0)
    story.in_service(4.0)
    assert story.took == [4.0]
    assert story.lines()[-1].endswith("after 4.000 s: 3.000 s until the assignment, 1.000 s to open 0_0")


def test_what_an_expired_member_had_is_gained_again(story):
    story.assigned(TWO, 1, tasks(0), tasks(1), 0.0)
    story.in_service(0.0)
    story.loses()
    story.assigned(TWO, 5, tasks(0), tasks(1), 9.0)
    assert "gains 0_0; 1 active" in story.lines()[-1]


def test_many_tasks_are_named_in_part(story):
    story.assigned(TWO, 1, tasks(*range(30)), (), 0.0)
    assert "gains 0_0, 0_1, 0_2, 0_3, 0_4, 0_5, 0_6, 0_7, 0_8, 0_9 and 20 more;" in story.lines()[0]


def test_a_notice_travels():
    ids = [ProcessId.parse(f"{letter * 8}-0000-0000-0000-000000000000") for letter in "baa"]
    notice = Notice.of(ids, "a joined")
    assert notice == Notice(("aaaaaaaa", "bbbbbbbb"), "a joined")
    assert Notice.decode(notice.encode()) == notice
    one, other = ids[0], ids[-1]
    warming = Notice.of(ids, "a joined", {one: [TaskId(1, 0), TaskId(0, 10), TaskId(0, 9)], other: []})
    assert warming.warms(one) == ("0_9", "0_10", "1_0")
    assert warming.warms(other) == ()
    assert Notice.decode(warming.encode()) == warming
    # What an older release sends has none.
    assert Notice.decode(b'{"processes": ["aaaaaaaa"], "why": "a joined"}') == Notice(("aaaaaaaa",), "a joined")


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b'{"processes": 1, "why": 2}', b"{}", b"[" * 100_000])
def test_a_notice_that_cannot_be_read_is_empty(data):
    assert Notice.decode(data) == Notice()


@pytest.mark.parametrize(
    ("now", "before", "again", "asked", "text"),
    [
        (["a", "b"], ["a"], [], None, "b joined"),
        (["a"], ["a", "b"], [], "copies are warm", "b left"),
        (["a", "c"], ["a", "b"], [], None, "c joined, b left"),
        (["a", "b"], ["a", "b"], ["b"], None, "b rejoined"),
        (["a"], ["a"], [], "copies are warm", "copies are warm"),
        (["a"], ["a"], [], None, "a member asked for it"),
        (["a"], [], [], None, "the leader is new to the group"),
    ],
)
def test_why(now, before, again, asked, text):
    assert why(now, before, again=again, asked=asked) == text


def test_why_a_group_begins():
    assert why(["a"], [], again=[], asked=None, begins=True) == "the group begins"
