"""`sparkrelay broker`, run as a user runs it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.waiting import LONG

from sparkrelay.devkafka.probe import answers
from sparkrelay.devkafka.topics import describe_topic
from sparkrelay.host import process_start

pytestmark = pytest.mark.integration


@pytest.fixture
def broker_command(tmp_path):
    """Run `sparkrelay broker ...` with a state folder of our own; stop what is left at the end."""
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-c", "from sparkrelay.cli import main; main()", "broker", *arguments],
            capture_output=True,
            text=True,
            env=environment,
            timeout=LONG,
            check=False,
        )

    run.record = tmp_path / "state" / "sparkrelay" / "broker.json"
    yield run
    run("stop")
    run("stop", "--name", "second")


def topic_count(line):
    address = line.strip().partition("=")[2]
    return len(AdminClient({"bootstrap.servers": address}).list_topics(timeout=LONG).topics)


@pytest.mark.long
def test_start_leaves_it_running_until_stop(broker_command):
    assert broker_command("status").returncode == 3
    assert broker_command("create-topic", "flights").returncode == 3

    started = broker_command("start")
    assert started.returncode == 0, started.stderr
    [line] = started.stdout.splitlines()
    name, _, address = line.partition("=")
    assert name == "bootstrap.servers"
    host, _, port = address.rpartition(":")
    assert answers(host, int(port), timeout_s=LONG)

    again = broker_command("start")
    assert (again.returncode, again.stdout) == (0, started.stdout)
    assert "is running already" in again.stderr

    made = broker_command("create-topic", "flights", "--partitions", "3")
    assert (made.returncode, made.stdout) == (0, "flights: created, partitions: 3\n"), made.stderr
    assert broker_command("create-topic", "flights").stdout == "flights: exists already, partitions: 3\n"
    described = describe_topic(address, "flights")
    assert described.partitions == (0, 1, 2)
    assert described.configs["retention.ms"] == "-1"
    none = broker_command("create-topic", "flights", "--partitions", "0")
    assert none.returncode == 1
    assert "--partitions 0" in none.stderr

    second = broker_command("start", "--name", "second")
    assert second.returncode == 0, second.stderr
    assert second.stdout != started.stdout
    made = broker_command("create-topic", "trains", "--broker", "second")
    assert (made.returncode, made.stdout) == (0, "trains: created, partitions: 4\n"), made.stderr
    assert {topic_count(one.stdout) for one in (started, second)} == {1}, "they share nothing"
    assert broker_command("stop", "--name", "second").returncode == 0
    assert broker_command("status", "--name", "second").returncode == 3

    other = broker_command("start", "--port", "1999")
    assert (other.returncode, other.stdout) == (1, "")
    assert f"on port {port}, not 1999" in other.stderr
    assert "sparkrelay broker stop" in other.stderr

    status = broker_command("status")
    assert status.returncode == 0
    assert line in status.stdout
    folder = Path(json.loads(broker_command.record.read_text())["data_dir"])
    assert folder.is_dir()

    stopped = broker_command("stop")
    assert stopped.returncode == 0
    assert f"on {address}" in stopped.stderr
    assert not answers(host, int(port), timeout_s=1)
    assert not folder.exists()

    nothing = broker_command("stop")
    assert (nothing.returncode, nothing.stderr) == (0, "No broker is running.\n")


@pytest.mark.long
def test_a_killed_broker_is_noticed_and_replaced(broker_command, tmp_path, wait_until):
    data = tmp_path / "data"
    assert broker_command("start", "--data", str(data)).returncode == 0
    first = json.loads(broker_command.record.read_text())
    os.kill(first["pid"], signal.SIGSTOP)
    paused = broker_command("status")
    assert paused.returncode == 1
    assert "does not answer" in paused.stderr
    os.kill(first["pid"], signal.SIGKILL)
    wait_until(lambda: process_start(first["pid"]) != first["started"], "the broker lives")

    status = broker_command("status")
    assert status.returncode == 3
    assert str(first["pid"]) in status.stderr

    second = broker_command("start", "--data", str(data))
    assert second.returncode == 0, second.stderr
    assert "had ended without" in second.stderr
    assert json.loads(broker_command.record.read_text())["pid"] != first["pid"]
    assert broker_command("stop").returncode == 0
    assert data.is_dir(), "a given folder stays"


def test_two_starts_at_once_are_one(broker_command):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: broker_command("start"), range(2))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stdout == second.stdout
    assert (first.stderr + second.stderr).count("is running already") == 1


def test_a_taken_port_fails_and_leaves_no_record(broker_command, kafka):
    port = kafka.bootstrap_servers.rpartition(":")[2]
    failed = broker_command("start", "--port", port)
    assert failed.returncode == 1
    assert f"Port {port} is taken" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not broker_command.record.exists()
