"""Stress runs shuffle what may be shuffled, and count what passed."""

import collections
import itertools
import subprocess
from types import SimpleNamespace

import pytest
from tests import stress
from tests.order import shuffled


def item(path, name, *marks):
    return SimpleNamespace(path=path, name=name, get_closest_marker=lambda mark: mark in marks or None)


ITEMS = [
    *(item("a.py", f"a{n}") for n in range(20)),
    *(item("b.py", f"b{n}", "in_order") for n in range(20)),
    *(item(f"c{n}.py", "c") for n in range(20)),
]


def test_a_seed_is_an_order():
    one, same, other = (shuffled(ITEMS, seed) for seed in ("1", "1", "2"))
    assert one == same
    assert one != other
    assert {id(i) for i in one} == {id(i) for i in ITEMS}


def test_tests_of_a_file_stay_together_and_in_order_where_they_must():
    found = collections.defaultdict(list)
    shuffled_items = shuffled(ITEMS, "1")
    for test in shuffled_items:
        found[test.path].append(test.name)
    assert found["b.py"] == [f"b{n}" for n in range(20)]
    assert found["a.py"] != [f"a{n}" for n in range(20)]
    files = [test.path for test in shuffled_items]
    assert sum(one != other for one, other in itertools.pairwise(files)) == len(found) - 1


@pytest.fixture
def report(tmp_path):
    file = tmp_path / "report.xml"
    file.write_text(
        "<testsuites><testsuite>"
        '<testcase classname="a" name="good"/>'
        '<testcase classname="a" name="bad"><failure message="x">y</failure></testcase>'
        '<testcase classname="a" name="broken"><error message="x">y</error></testcase>'
        '<testcase classname="a" name="skipped"><skipped message="x"/></testcase>'
        "</testsuite></testsuites>"
    )
    return file


def test_outcomes_are_read_of_the_report(report):
    assert list(stress.outcomes(report)) == [("a::good", True), ("a::bad", False), ("a::broken", False)]


def test_counts_survive(tmp_path):
    file = tmp_path / "passed.tsv"
    assert stress.read_passed(file) == {}
    counted = collections.Counter({"often": 3, "once[a b]": 1})
    stress.write_passed(counted, file)
    assert file.read_text() == "1\tonce[a b]\n3\toften\n"
    assert stress.read_passed(file) == counted


def test_loops_are_busy_and_end(tmp_path, monkeypatch, wait_until):
    monkeypatch.setattr(stress, "FOLDER", tmp_path)
    monkeypatch.setattr(stress, "_BUSY", f"import time\nwhile True: time.sleep(1) # {tmp_path}")

    def running():
        found = subprocess.run(
            ["pgrep", "--full", f"^[^ ]*python.*{tmp_path}"], capture_output=True, check=False
        ).stdout
        return len(found.split())

    with stress.busy_loops(2):
        wait_until(lambda: running() >= 2, "the loops are not started")
    wait_until(lambda: running() == 0, "the loops are left")
