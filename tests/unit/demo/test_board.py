import io

import pytest
from rich.console import Console

from sparkrelay.demo.board import Board, Share
from sparkrelay.demo.screen import LiveScreen, PlainLines, open_screen, render

PROCESS_A = "0d0f3a52-1111-4222-8333-444455556666"


@pytest.fixture
def board():
    board = Board(acceptable_lag=100)
    board.add("A")
    board.add("B")
    return board


def place(process=PROCESS_A, executor=None, **held):
    tasks = {task.removeprefix("t"): list(state) for task, state in held.items()}
    return {"process": process, "executor": executor, "tasks": tasks}


def tasks(at=0.0, records=0, batches=0, process=PROCESS_A, behind=0, places=None, **held):
    return {
        "event": "tasks",
        "at": at,
        "places": [place(process, **held)] if places is None else places,
        "behind": behind,
        "records": records,
        "batches": batches,
        "status": "RUNNING",
    }


def told(board):
    return [note.text for note in board.notes]


def test_what_a_task_is_to_an_instance(board):
    board.apply("A", tasks(t0_0=("running", 0), t0_1=("restoring", 7), t0_2=("standby", 100), t0_3=("standby", 101)))
    shares = {task: share for task, (share, _) in board.clients["A"].tasks.items()}
    assert shares == {"0_0": Share.ACTIVE, "0_1": Share.RESTORING, "0_2": Share.STANDBY, "0_3": Share.WARMING}


def test_what_a_task_is_to_an_instance_with_executors(board):
    one = place(executor="1", t0_0=("running", 0), t0_1=("standby", 101), t0_2=("standby", 3))
    two = place("other", executor="2", t0_0=("standby", 0), t0_1=("restoring", 7), t0_2=("standby", 500))
    board.apply("A", tasks(places=[one, two]))
    client = board.clients["A"]
    assert {task: share for task, (share, _) in client.tasks.items()} == {
        "0_0": Share.ACTIVE,
        "0_1": Share.RESTORING,
        "0_2": Share.WARMING,
    }
    assert {id_: tasks["0_0"][0] for id_, tasks in client.executors.items()} == {"1": Share.ACTIVE, "2": Share.STANDBY}
    board.apply("A", tasks(places=[two]))
    assert list(client.executors) == ["2"]
    board.apply("A", {"event": "told", "text": f"  task 0_0 starts on {PROCESS_A}"})
    assert told(board)[-1] == "  task 0_0 starts on A/1"


def test_the_first_owner_takes_tasks_into_service(board):
    board.apply("A", tasks(t1_0=("running", 0), t0_0=("running", 0)))
    board.apply("A", tasks(t1_0=("running", 0), t0_0=("running", 0)))
    assert told(board) == ["A is in service with 0_0, 1_0"]


def test_a_hand_over_is_told(board):
    board.apply("A", tasks(t0_0=("running", 0), t0_1=("running", 0)))
    board.apply("B", tasks(process="other", t0_1=("standby", 500)))
    board.apply("A", tasks(t0_0=("running", 0)))
    board.apply("B", tasks(process="other", t0_1=("running", 0)))
    assert told(board)[1:] == [
        "B warms copies of 0_1: the owner works on until they have caught up",
        "B has taken 0_1 over from A, already at speed",
    ]


def test_a_takeover_is_told(board):
    board.apply("A", tasks(t0_0=("running", 0)))
    board.end("A", "killed")
    board.apply("A", tasks(t0_0=("running", 0)))
    assert board.clients["A"].tasks == {}, "late reports of the dead are not believed"
    board.apply("B", tasks(process="other", t0_0=("running", 0)))
    assert told(board)[-1] == "B carries on with 0_0, which A left behind"


def test_process_ids_become_names(board):
    board.apply("A", tasks())
    board.apply("A", {"event": "told", "text": f"  process {PROCESS_A}: active 0_0"})
    assert "process A: active 0_0" in told(board)[-1]


def test_the_rate_is_of_the_last_seconds(board):
    for second in range(10):
        board.apply("A", tasks(at=float(second), records=second * 1000 if second < 5 else 4000 + (second - 4) * 10))
    assert board.clients["A"].rate == pytest.approx(10.0)


def test_whatever_happens_is_a_change_but_not_that_time_passes(board):
    reports = (
        tasks(t0_0=("standby", 7)),
        tasks(t0_0=("running", 0)),
        {"event": "state", "state": "REBALANCING"},
        {"event": "told", "text": "leads the rebalance (members: 2), because b joined: nothing changes"},
        {"event": "told", "text": "app-1: generation 3, 2 processes (a, b), because b joined: nothing moves here"},
        {"event": "told", "text": "rebalance (members: 2, processes: 2)"},
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


def test_the_picture_has_it_all(busy):
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None)
    console.print(render(busy))
    shown = console.file.getvalue()
    for words in ("SparkRelay demo", "0_0", "0_1", "● ", "◐ 777", "50 of 100", "something [odd]", "1:05"):
        assert words in shown


def test_the_picture_of_the_dead(busy):
    busy.end("A", "killed")
    console = Console(file=io.StringIO(), width=120)
    console.print(render(busy))
    assert "killed" in console.file.getvalue()
    assert "✗" in console.file.getvalue()


def test_without_a_terminal_each_thing_is_told_once(busy):
    console = Console(file=io.StringIO(), width=60)
    with open_screen(console) as screen:
        assert isinstance(screen, PlainLines)
        screen.show(busy)
        screen.show(busy)
    lines = console.file.getvalue().splitlines()
    assert sum("something [odd]" in line for line in lines) == 1
    figures = [line for line in lines if "produced 50 of 100" in line]
    assert len(figures) == 1
    assert "A starting Spark: 1 active" in figures[0]
    assert "B starting Spark: 1 restoring, 1 warming" in figures[0]


def test_a_terminal_gets_the_live_screen(busy):
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with open_screen(console) as screen:
        assert isinstance(screen, LiveScreen)
        screen.show(busy)
        busy.note("the last word")
    assert "the last word" in console.file.getvalue(), "what was shown last is up to date"
