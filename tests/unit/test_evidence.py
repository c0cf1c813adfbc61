"""A failed test leaves the logs of its own time in a folder that its failure names."""

import os
import subprocess
import sys

import pytest
from tests.evidence import SHOWN_LINES, folder_name, shortened

CONFTEST = """
from pathlib import Path
from tests.evidence import Evidence, watch

LOG = Path("broker.log")

def pytest_configure(config):
    config.pluginmanager.register(Evidence(config.rootpath / "kept"))
    watch(LOG)
    watch(Path("never-made.log"))
"""

TESTS = """
import logging
from pathlib import Path
import pytest

LOG = Path("broker.log")

def append(text):
    with LOG.open("a") as log:
        log.write(text)

def test_passes():
    append("before\\n")

@pytest.mark.integration
def test_fails(tmp_path):
    append("during\\n")
    (tmp_path / "child.log").write_text("of a child")
    (tmp_path / "0000.log").write_text("a segment")
    logging.getLogger("sparkrelay.x").info("a step")
    print("printed\\n" * 200)
    assert LOG.read_text() == "", "the reason"

def test_fails_in_its_own_way():
    append("after\\n")
    LOG.write_text("new")
    assert False
"""


@pytest.fixture
def run_tests(tmp_path, project_root):
    """`run_tests(source)` runs a test file and returns how its process ended."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = integration")

    def run(source):
        (tmp_path / "test_sample.py").write_text(source)
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(project_root), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_a_failure_names_the_folder_of_its_own_logs(tmp_path, run_tests):
    run = run_tests(TESTS)
    assert run.returncode == 1, run.stdout + run.stderr
    kept = tmp_path / "kept"
    assert sorted(p.name for p in kept.iterdir()) == [
        "test_sample.py-test_fails",
        "test_sample.py-test_fails_in_its_own_way",
    ]
    first = kept / "test_sample.py-test_fails"
    logs = {path.name.partition("-")[2].rpartition("-")[2]: path.read_text() for path in first.glob("0*.log")}
    assert logs == {"broker.log": "during\n", "child.log": "of a child"}
    assert "the reason" in (first / "failure.txt").read_text()
    assert "a step" in (first / "captured-log-call.txt").read_text()
    assert (first / "captured-stdout-call.txt").read_text().count("printed") == 200
    assert f"{first}: " in run.stdout
    assert run.stdout.count("printed\n") <= SHOWN_LINES + 1, "the terminal shows the end"
    second = kept / "test_sample.py-test_fails_in_its_own_way"
    assert [path.read_text() for path in second.glob("0*.log")] == ["new"]


@pytest.mark.long
def test_what_an_earlier_run_left_of_a_test_is_removed(tmp_path, run_tests):
    other = tmp_path / "kept" / "test_sample.py-test_other" / "failure.txt"
    other.parent.mkdir(parents=True)
    other.write_text("of a test that is not run")
    folder = tmp_path / "kept" / "test_sample.py-test_it"
    run_tests("def test_it(tmp_path):\n    (tmp_path / 'first.log').write_text('x')\n    assert 0")
    assert [path.name.partition("-")[0] for path in sorted(folder.iterdir())] == ["00", "failure.txt"]
    assert run_tests("def test_it(): assert 0").returncode == 1
    assert [path.name for path in folder.iterdir()] == ["failure.txt"]
    assert run_tests("def test_it(): pass").returncode == 0
    assert not folder.exists()
    assert other.exists()


@pytest.mark.long
def test_a_fixture_that_fails_in_its_end_hides_no_failure(tmp_path, run_tests):
    source = "@pytest.fixture\ndef own():\n    yield\n    assert 0, 'the end'"
    run_tests(f"import pytest\n{source}\ndef test_it(own): assert 0, 'the reason'")
    folder = tmp_path / "kept" / "test_sample.py-test_it"
    assert "the reason" in (folder / "failure.txt").read_text()
    assert "the end" in (folder / "failure-in-teardown.txt").read_text()


def test_a_folder_has_the_name_of_its_test():
    name = folder_name("tests/chaos/test_broker.py::test_goes[kill-a b/ü]")
    assert name == "chaos-test_broker.py-test_goes-kill-a-b-ü"


def test_a_section_is_shown_by_its_end():
    assert shortened("a\nb") == "a\nb"
    assert shortened("\n".join(map(str, range(SHOWN_LINES + 5)))).splitlines()[:2] == ["... 5 lines before", "5"]
