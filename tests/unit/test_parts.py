"""The parts of the suite: together they hold every test, and each leaves a result that a later run can trust."""

import errno
import os
import subprocess
import threading
from pathlib import Path

import pytest
import yaml
from tests import parts
from tests.parts import PARTS, QUICK, Part, Result, counts, files_digest, holder, result_file
from tests.waiting import LONG

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"


def holders(file, among):
    """Return the names of the parts that run a test file."""
    name = file.relative_to(TESTS).as_posix()
    return [part.name for part in among for test in part.tests if name == test or name.startswith(f"{test}/")]


def test_every_test_file_is_in_one_part():
    by_targets = {"browser", "chart"}
    files = [file for file in TESTS.rglob("test_*.py") if file.relative_to(TESTS).parts[0] not in by_targets]
    assert len(files) > 400
    assert {file.name: found for file in files if len(found := holders(file, PARTS)) != 1} == {}
    assert by_targets <= {part.name for part in PARTS}


def test_what_parts_name_exists():
    assert [test for part in PARTS for test in part.tests if not (TESTS / test).exists()] == []


def test_the_quick_run_leaves_no_part_out_but_those_that_are_long_as_a_whole():
    quick = [part for lane in QUICK for part in lane]
    held = {test for part in quick for test in part.tests}
    assert [part.name for part in PARTS if part.tests and not held.issuperset(part.tests)] == ["fuzz"]
    assert all(file.read_text().count("mark.long") for file in (TESTS / "long").glob("test_*.py"))


def test_the_nightly_workflow_runs_every_part():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text())
    nightly = workflow["jobs"]["part"]["strategy"]["matrix"]["part"]
    # Python versions have a matrix of their own, in test.yml.
    assert nightly == [part.name for part in PARTS if not part.name.startswith("python-")]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a passing, a failing and an interrupted test; `project(name)` returns how a part of it ended."""
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_good.py").write_text("def test_it(): pass\n")
    (tests / "test_bad.py").write_text("def test_it(): pass\ndef test_other(): assert False\n")
    (tmp_path / ".gitignore").write_text("artifacts\n__pycache__\n.pytest_cache\n")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    monkeypatch.setattr(parts, "RESULTS", tmp_path / "artifacts" / "parts")
    monkeypatch.setattr(parts, "files_digest", lambda: files_digest(tmp_path))
    (tests / "test_long.py").write_text("import pytest\n@pytest.mark.long\ndef test_it(): assert False\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long\n")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    plain = ("-p", "no:cacheprovider")
    monkeypatch.setattr(parts, "WITH_SPARK", plain)
    monkeypatch.setattr(
        parts,
        "PARTS",
        (
            Part("good", "passes", ("test_good.py",), plain),
            Part("bad", "fails", ("test_bad.py",), plain),
            Part("absent", "needs what no machine has", ("test_bad.py",), plain, needs="no-such-program"),
        ),
    )
    return lambda name: Result.read(result_file(name, quick=False))


def test_each_part_leaves_its_result(project, capfd):
    assert parts.main([]) == 1
    good, bad, absent = project("good"), project("bad"), project("absent")
    assert (good.outcome, good.tests) == ("passed", {"passed": 1, "failed": 0, "skipped": 0})
    assert (bad.outcome, bad.tests) == ("failed: exit 1", {"passed": 1, "failed": 1, "skipped": 0})
    assert absent.outcome == "left out: there is no no-such-program"
    assert "2 failed" not in capfd.readouterr().out


def test_two_runs_at_once_would_remove_each_others_results(project):
    with parts.alone(), pytest.raises(SystemExit, match="another run of tests.parts uses"):
        parts.main(["good"])
    assert project("good") is None
    assert parts.main(["good"]) == 0


@pytest.mark.long
def test_a_part_that_passed_is_not_run_again_until_a_file_changes(project, tmp_path, capfd):
    parts.main([])
    first = project("good")
    capfd.readouterr()
    assert parts.main([]) == 1
    assert "=== bad: fails" in (out := capfd.readouterr().out)
    assert "=== good: passes" not in out
    assert out.count("good") == 1, "its result is in the summary"
    assert project("good") == first
    (tmp_path / "new.py").write_text("")
    parts.main([])
    assert project("good").files != first.files
    capfd.readouterr()
    parts.main(["good"])
    assert "=== good: passes" in capfd.readouterr().out, "who names it means it"


@pytest.mark.long
def test_a_part_during_which_a_file_changed_is_run_again(project, tmp_path, capfd):
    new = tmp_path / "new.py"
    (tmp_path / "tests" / "test_good.py").write_text(f"def test_it(): open({str(new)!r}, 'w').close()\n")
    parts.main([])
    assert project("good").outcome == "passed"
    assert project("bad").files == files_digest(tmp_path), "it began after the change"
    capfd.readouterr()
    for _ in range(2):
        parts.main([])
    assert capfd.readouterr().out.count("=== good: passes") == 1, "once more, on files that stay"
    new.unlink()
    parts.main([])
    assert "=== good: passes" in capfd.readouterr().out


@pytest.mark.long
def test_a_part_that_takes_too_long_has_failed(project, monkeypatch, tmp_path):
    (tmp_path / "tests" / "test_good.py").write_text("import time\ndef test_it(): time.sleep(300)\n")
    monkeypatch.setattr(parts, "LIMIT_SECONDS", 3)
    assert parts.main(["good"]) == 1
    assert project("good").outcome == "failed: it took more than 0:03"


def test_a_part_whose_result_cannot_be_kept_has_failed_and_the_next_one_runs(project, monkeypatch, capfd):
    write = Result.write

    def full(result, file):
        if result.part == "good":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(result, file)

    monkeypatch.setattr(Result, "write", full)
    assert parts.main(["good", "bad"]) == 1
    assert project("good") is None
    assert project("bad").outcome == "failed: exit 1"
    assert "good                 failed: [Errno 28] No space left on device" in capfd.readouterr().out
    assert parts.main(["good"]) == 1


def test_an_interrupted_part_says_so_and_leaves_no_result(project, tmp_path, wait_until):
    began = tmp_path / "artifacts" / "began"
    script = f"import time\ndef test_it():\n    open({str(began)!r}, 'w').close()\n    time.sleep(300)\n"
    (tmp_path / "tests" / "test_good.py").write_text(script)
    running = parts.Run(quick=False)
    lane = threading.Thread(target=running.lane, args=(parts.PARTS,), kwargs={"shown_at_once": False})
    lane.start()
    wait_until(began.exists, "the test does not begin")
    running.interrupt()
    lane.join(LONG)
    assert {name: result.outcome for name, result in running.results.items()} == {"good": "interrupted"}
    assert project("good") is None


def test_a_part_that_is_named_and_cannot_run_has_failed(project):
    assert parts.main(["absent"]) == 1, "a nightly job would be green without a test"
    assert project("absent").outcome.startswith("left out")


def test_files_are_run_without_their_long_tests(project, capfd):
    assert parts.main(["--files", "tests/test_long.py"]) == 0, "long ones alone"
    assert parts.main(["--files", "tests/test_long.py", "tests/test_good.py"]) == 0
    assert "1 passed, 1 deselected" in capfd.readouterr().out
    assert parts.main(["--files", "tests/test_good.py", "tests/test_bad.py"]) == 1


def test_an_unknown_part_is_refused(capsys):
    with pytest.raises(SystemExit):
        parts.main(["kils"])
    assert "there is no part kils" in capsys.readouterr().err


def test_a_result_that_was_cut_off_is_none(tmp_path):
    file = tmp_path / "part.json"
    assert Result.read(file) is None
    file.write_text('{"part": "un')
    assert Result.read(file) is None
    file.write_text('{"part": "units"}')
    assert Result.read(file) is None


def test_a_missing_report_counts_nothing(tmp_path):
    assert counts(tmp_path / "none.xml") == {}


def test_a_test_is_known_by_the_class_of_its_report():
    assert holder("tests.unit.records.avro.test_resolution.TestIt") == "units"
    assert holder("tests.chaos.test_broker") == "kills-of-clusters"
    assert holder("tests.chaos.consumer.test_consumer_faults_broker") == "broker"
    assert holder("tests.integration.consumer.conformance.test_poll") == "consumer"
    assert holder("other.test_broker") is None
