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


@pytest.fixture
def stressed(tmp_path, monkeypatch):
    """`stressed(source, *options)` returns the exit status of a run of one test file."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long\n")
    monkeypatch.setattr(stress, "ROOT", tmp_path)
    monkeypatch.setattr(stress, "FOLDER", tmp_path / "artifacts")
    monkeypatch.setattr(stress, "WITH_SPARK", ("-p", "no:cacheprovider"))
    monkeypatch.setattr(stress, "read_passed", collections.Counter)
    monkeypatch.setattr(stress, "write_passed", lambda passed: None)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(source, *options):
        (tmp_path / "test_it.py").write_text(source)
        return stress.main(["--loops", "0", "--repeats", "2", *options])

    return run


@pytest.mark.parametrize(
    ("source", "file", "status", "said"),
    [
        ("def test(): pass", "test_it.py", 0, "repeat 2 of 2"),
        ("def test(): assert False", "test_it.py", 1, "failed 2 of 2 times: test_it::test"),
        ("def test(): pass", "test_other.py", 1, "No test ran"),
        ("import pytest\n@pytest.mark.long\ndef test(): pass", "test_it.py", 1, "No test ran"),
    ],
)
def test_a_run_fails_where_a_test_fails_and_where_none_ran(source, file, status, said, stressed, capfd):
    assert stressed(source, file) == status
    assert said in capfd.readouterr().out


def test_no_repeat_is_refused(stressed, capfd):
    with pytest.raises(SystemExit):
        stressed("def test(): pass", "--repeats", "0", "test_it.py")
    assert "--repeats 0" in capfd.readouterr().err


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
