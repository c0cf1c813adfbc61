import io

import pytest
from rich.console import Console

from sparkrelay.demo.board import Board, Share
from sparkrelay.demo.screen import Screen

PROCESS_A = "0d0f3a52-1111-4222-8333-444455556666"


@pytest.fixture
def board():
    board = Board(acceptable_lag=100)
    board.add("A")
    board.add("B")
    return board


def thread(process=PROCESS_A, executor=None, **held):
    tasks = {task.removeprefix("t"): list(state) for task, state in held.items()}
    return {"process": process, "executor": executor, "tasks": tasks}


def tasks(at=0.0, records=0, batches=0, process=PROCESS_A, behind=0, threads=None, **held):
    return {
        "event": "tasks",
        "at": at,
        "threads": [thread(process, **held)] if threads is None else threads,
        "behind": behind,
        "records": records,
        "batches": batches,
        "status": "RUNNING",
    }


def noted(board):
    return [text for _, text in board.notes]


def test_what_a_task_is_to_an_instance(board):
    board.apply("A", tasks(t0_0=("running", 0), t0_1=("restoring", 7), t0_2=("standby", 100), t0_3=("standby", 101)))
    shares = {task: share for task, (share, _) in board.clients["A"].tasks.items()}
    assert shares == {"0_0": Share.ACTIVE, "0_1": Share.RESTORING, "0_2": Share.STANDBY, "0_3": Share.WARMING}


def test_what_a_task_is_to_an_instance_with_executors(board):
    one = thread(executor="1", t0_0=("running", 0), t0_1=("standby", 101), t0_2=("standby", 3))
    two = thread("other", executor="2", t0_0=("standby", 0), t0_1=("restoring", 7), t0_2=("standby", 500))
    board.apply("A", tasks(threads=[one, two]))
    client = board.clients["A"]
    assert {task: share for task, (share, _) in client.tasks.items()} == {
        "0_0": Share.ACTIVE,
        "0_1": Share.RESTORING,
        "0_2": Share.WARMING,
    }
    assert {id_: tasks["0_0"][0] for id_, tasks in client.executors.items()} == {"1": Share.ACTIVE, "2": Share.STANDBY}
    board.apply("A", tasks(threads=[two]))
    assert list(client.executors) == ["2"]
    board.apply("A", {"event": "log", "text": f"  task 0_0 starts on {PROCESS_A}"})
    assert noted(board)[-1] == "  task 0_0 starts on A/1"


def test_the_first_owner_takes_tasks_into_service(board):
    board.apply("A", tasks(t1_0=("running", 0), t0_0=("running", 0)))
    board.apply("A", tasks(t1_0=("running", 0), t0_0=("running", 0)))
    assert noted(board) == ["A runs 0_0, 1_0"]


def test_a_hand_over_is_noted(board):
    board.apply("A", tasks(t0_0=("running", 0), t0_1=("running", 0)))
    board.apply("B", tasks(process="other", t0_1=("standby", 500)))
    board.apply("A", tasks(t0_0=("running", 0)))
    board.apply("B", tasks(process="other", t0_1=("running", 0)))
    assert noted(board)[1:] == [
        "B warms copies of 0_1: their owner works until they have caught up",
        "B took over 0_1 from A, with warm state",
    ]


def test_a_takeover_is_noted(board):
    board.apply("A", tasks(t0_0=("running", 0)))
    board.end("A", "killed")
    board.apply("A", tasks(t0_0=("running", 0)))
    assert board.clients["A"].tasks == {}, "late reports of the dead are not believed"
    board.apply("B", tasks(process="other", t0_0=("running", 0)))
    assert noted(board)[-1] == "B continues 0_0, which A had"


def test_process_ids_become_names(board):
    board.apply("A", tasks())
    board.apply("A", {"event": "log", "text": f"  process {PROCESS_A}: active 0_0"})
    assert "process A: active 0_0" in noted(board)[-1]


def test_the_rate_is_of_the_last_seconds(board):
    for second in range(10):
        board.apply("A", tasks(at=float(second), records=second * 1000 if second < 5 else 4000 + (second - 4) * 10))
    assert board.clients["A"].rate == pytest.approx(10.0)


def test_whatever_happens_is_a_change_but_not_that_time_passes(board):
    reports = (
        tasks(t0_0=("standby", 7)),
        tasks(t0_0=("running", 0)),
        {"event": "state", "state": "REBALANCING"},
        {"event": "log", "text": "leads the rebalance (members: 2), because b joined: nothing changes"},
        {"event": "log", "text": "app-1: generation 3, 2 processes (a, b), because b joined: nothing moves here"},
        {"event": "log", "text": "rebalance (members: 2, processes: 2)"},
    )
    for report in reports:
        board.elapsed += 1.0
        board.apply("A", report)
        assert board.changed_at == board.elapsed
    before = board.changed_at
    board.elapsed += 1.0
    board.apply("A", tasks(at=9.0, records=100, behind=3, t0_0=("running", 4)))
    assert board.changed_at == before


def test_a_failure_is_kept_for_the_message(board):
    board.apply("A", {"event": "failed", "text": "StateStoreException: no room"})
    assert board.clients["A"].failure == "StateStoreException: no room"


@pytest.fixture
def busy(board):
    board.title, board.elapsed, board.total, board.produced, board.counted, board.to_count = "t", 65, 100, 50, 40, 90
    board.apply("A", tasks(at=0.0, t0_0=("running", 0)))
    board.apply("B", tasks(process="other", behind=7, t0_0=("standby", 777), t0_1=("restoring", 5)))
    board.note("something [odd]")
    return board


def drawn(board, *, then=lambda: None):
    """Return what a terminal shows of the board."""
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None)
    with Screen(console) as screen:
        screen.show(board)
        then()
    return console.file.getvalue()


def test_the_picture_has_it_all(busy):
    shown = drawn(busy)
    for words in ("SparkRelay demo", "0_0", "0_1", "● ", "◐ 777", "50 of 100", "something [odd]", "1:05"):
        assert words in shown


def test_the_picture_of_the_dead(busy):
    busy.end("A", "killed")
    shown = drawn(busy)
    assert "killed" in shown
    assert "✗" in shown


def test_what_is_drawn_last_is_up_to_date(busy):
    assert "the last word" in drawn(busy, then=lambda: busy.note("the last word"))


def test_without_a_terminal_each_thing_is_printed_once(busy):
    console = Console(file=io.StringIO(), width=60)
    with Screen(console) as screen:
        screen.show(busy)
        screen.show(busy)
        busy.note("something more")
        screen.show(busy)
    lines = console.file.getvalue().splitlines()
    assert lines[-2:] == ["[1:05] something [odd]", "[1:05] something more"]
    assert len(lines) == len(busy.notes)
