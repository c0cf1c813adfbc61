"""docs/deploying.md: the settings that bind the ports of Spark's driver to the loopback interface do so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

_CHILD = """
import sys
from sparkrelay import spark_session

session = spark_session("ports", **dict(word.split("=", 1) for word in sys.argv[1:]))
session.range(10).count()
print("ready", flush=True)
sys.stdin.read()
session.stop()
"""
_LISTENS = "0A"
_LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def listening(root):
    """Return the addresses at which a process and its children listen, as /proc has them: address -> ports."""
    children = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(parent, []).append(int(entry.parent.name))
    family = [root]
    for process in family:
        family += children.get(process, [])
    sockets = set()
    for process in family:
        for file in Path(f"/proc/{process}/fd").iterdir():
            try:
                sockets.add(str(file.readlink()))
            except FileNotFoundError:
                continue
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENS and f"socket:[{fields[9]}]" in sockets:
                address, _, port = fields[1].partition(":")
                found.setdefault(address, set()).add(int(port, 16))
    return found


@pytest.fixture
def addresses():
    """`addresses(*settings, **environment)`: where a session of its own on this machine listens."""

    def started(*settings, **environment):
        environment = {**{k: v for k, v in os.environ.items() if k != "SPARK_LOCAL_IP"}, **environment}
        command = [sys.executable, "-c", _CHILD, "spark.master=local[1]", *settings]
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        with subprocess.Popen(command, env=environment, **options) as child:
            try:
                assert any(line == "ready\n" for line in child.stdout)
                return listening(child.pid)
            finally:
                child.communicate(timeout=300)

    return started


@pytest.mark.long
def test_without_more_others_reach_spark(addresses):
    assert set(addresses()) - _LOOPBACK


@pytest.mark.long
def test_one_variable_binds_every_port_to_loopback(addresses):
    found = addresses(SPARK_LOCAL_IP="127.0.0.1")
    assert set(found) <= _LOOPBACK
    assert sum(map(len, found.values())) == 4, "Spark's page, two ports of the driver, and py4j's"


@pytest.mark.long
def test_settings_bind_every_port_to_loopback(addresses):
    found = addresses("spark.driver.bindAddress=127.0.0.1", "spark.ui.enabled=false")
    assert set(found) <= _LOOPBACK
    assert sum(map(len, found.values())) == 3
