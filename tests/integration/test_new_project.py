"""A project of `sparkrelay new`: its tests pass, and its pipeline does on a real Kafka what its README says."""

import json
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from tests.scripts import running
from tests.waiting import LONG

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project, made in a folder of its own."""
    folder = tmp_path_factory.mktemp("new")
    make = "import sys; from sparkrelay.cli import main; main(sys.argv[1:])"
    subprocess.run([sys.executable, "-c", make, "new", "spendings"], cwd=folder, check=True)
    return folder / "spendings"


@pytest.mark.long
def test_its_tests_pass(project):
    tests = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error::pytest.PytestCollectionWarning"]
    run = subprocess.run(tests, cwd=project, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r" 3 passed(, \d+ warnings?)? in ", run.stdout), run.stdout


@contextmanager
def running_in(project, script, log, **environment):
    """Run a script of the project, whose output goes to a file."""
    with (
        log.open("wb") as out,
        running(script, environment=environment, cwd=project, stdout=out, stderr=subprocess.STDOUT) as process,
    ):
        yield process


@pytest.mark.long
def test_its_pipeline_runs_on_kafka(project, kafka, kafka_admin, wait_until, tmp_path):
    from sparkrelay.cli.app import run

    for topic in ("orders", "totals"):
        assert run(["broker", "create-topic", topic, "--bootstrap-servers", kafka.bootstrap_servers]) == 0
    where = {"KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "STATE_DIR": str(tmp_path / "state")}
    log, shown = tmp_path / "pipeline.log", tmp_path / "try_it.log"
    expected = {"ada": (2, 7.5), "bo": (1, 5.0)}
    try:
        with running_in(project, "pipeline.py", log, **where) as pipeline:
            with running_in(project, "try_it.py", shown, **where) as try_it:
                wait_until(
                    lambda: pipeline.poll() is not None or try_it.poll() is not None or _newest(shown) == expected,
                    f"no totals; the logs are in {tmp_path}",
                    400,
                )
                assert _newest(shown) == expected, log.read_text() + shown.read_text()
                try_it.send_signal(signal.SIGINT)
                assert try_it.wait(60) == 0, shown.read_text()
            pipeline.send_signal(signal.SIGTERM)
            pipeline.wait(120)
        assert "INFO sparkrelay" in log.read_text()
        assert "stopped after" in log.read_text()
    finally:
        topics = [name for name in kafka_admin.list_topics(timeout=LONG).topics if name.startswith("spendings-")]
        for future in kafka_admin.delete_topics(["orders", "totals", *topics]).values():
            future.result(LONG)


def _newest(file):
    """What was printed last of each customer. The last line may be half of one."""
    rows = [json.loads(line) for line in file.read_text().splitlines() if line.startswith("{") and line.endswith("}")]
    return {row["customer"]: (row["orders"], row["amount"]) for row in rows}
