"""docs/assignors.md: its example runs as a reader would run it, and what it names exists."""

import re
import sys
from fractions import Fraction
from pathlib import Path

import pytest

import sparkrelay.assignment
import sparkrelay.assignors
from sparkrelay.assignment import (
    AssignmentError,
    load_assignor,
    require_known_settings,
    task_assignment_utils,
    validate,
)
from sparkrelay.errors import ConfigException

PAGE = (Path(__file__).parents[3] / "docs" / "assignors.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def block(containing):
    (found,) = [text for text in BLOCKS if containing in text]
    return found


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder in which a reader has saved the example."""
    (tmp_path / "my_assignor.py").write_text(block("class MyAssignor"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_assignor", raising=False)
    yield tmp_path
    sys.modules.pop("my_assignor", None)


def test_the_example_is_short():
    assert len(block("class MyAssignor").splitlines()) <= 30


@pytest.mark.parametrize(
    "setting", ["my_assignor.py:MyAssignor", "./my_assignor.py:MyAssignor", "my_assignor:MyAssignor"]
)
def test_the_example_can_be_named_in_all_ways_of_the_page(folder, setting):
    assert type(load_assignor(setting, {})).__name__ == "MyAssignor"


def test_the_page_s_assignor_with_a_setting_gets_it():
    names = {}
    exec(block("class WithSlack"), names)
    assignor = load_assignor(names["WithSlack"], {"task.assignor.mine.slack": "0.2"})
    assert assignor.slack == Fraction(1, 5)
    assert load_assignor(names["WithSlack"], {}).slack == Fraction(1, 10)
    with pytest.raises(ConfigException, match="has no setting task.assignor.mine.slak='1'; did you mean"):
        require_known_settings(assignor, {"task.assignor.mine.slak": "1"})


def test_the_pages_own_test_passes(folder):
    names = {}
    exec(compile(block("def test_a_newcomer_gets_half"), "test_my_assignor.py", "exec"), names)
    names["test_a_newcomer_gets_half"]()


@pytest.mark.parametrize(
    ("before", "threads", "expected"),
    [
        ({1: "", 2: ""}, {}, {1: "0_0 0_2 1_1 / 0_1 1_0 1_2", 2: "0_1 1_0 1_2 / 0_0 0_2 1_1"}),
        ({1: "0_0 0_1 0_2 1_0 1_1 1_2", 2: ""}, {}, {1: "0_0 0_1 1_0 / 0_2 1_1 1_2", 2: "0_2 1_1 1_2 / 0_0 0_1 1_0"}),
        ({1: "", 2: ""}, {1: 2}, None),
        ({1: "0_0"}, {}, {1: "0_0 0_1 0_2 1_0 1_1 1_2"}),
        ({1: "", 2: "", 3: "0_0 1_0", 4: "", 5: "", 6: "", 7: "", 8: ""}, {}, None),
    ],
)
def test_the_example_keeps_the_rules_of_the_page(folder, group, table, before, threads, expected):
    state = group(before, [3, 3], replicas=1, threads=threads)
    answer = load_assignor("my_assignor.py:MyAssignor", {}).assign(state)
    assert validate(state, answer) is AssignmentError.NONE
    assert len(answer.assignment) == len(state.clients)
    assert sum(len(entry.active_tasks) for entry in answer.assignment) == 6
    if expected is not None:
        assert table(answer) == expected
    again = load_assignor("my_assignor.py:MyAssignor", {}).assign(
        group(table(answer), [3, 3], replicas=1, threads=threads)
    )
    assert again.assignment == answer.assignment


def test_every_assignor_here_is_on_the_page():
    for name in sparkrelay.assignors.__all__:
        assert f"`sparkrelay.assignors:{name}`" in PAGE


def test_the_functions_of_the_page_are_those_that_there_are():
    table = PAGE[PAGE.index("| function |") :].partition("\n\n")[0]
    first_column = [row.split("|")[1] for row in table.splitlines()[2:]]
    assert sorted(re.findall(r"`(\w+)`", " ".join(first_column))) == sorted(task_assignment_utils.__all__)
