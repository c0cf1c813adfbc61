"""The daemon that Spark's Python workers are forked from: who may have a worker."""

import contextlib
import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.marks import first_of
from tests.waiting import LONG

from sparkrelay.runtime.contract.socket_folders import LONGEST_PATH


@pytest.fixture
def folder():
    """Not pytest's own: the path of a socket has at most 108 bytes."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield folder


@contextlib.contextmanager
def running(folder, **environment):
    """Yield a daemon and the path of its socket."""
    environment = {"PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SOCK_DIR": str(folder)} | environment
    with subprocess.Popen(
        [sys.executable, "-m", "sparkrelay.runtime.worker.daemon"],
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        umask=0,
    ) as daemon:
        try:
            length = int.from_bytes(daemon.stdout.read(4), "big")
            yield daemon, Path(daemon.stdout.read(length).decode())
        finally:
            daemon.kill()


def test_nobody_else_can_connect_to_the_daemon_under_any_umask(folder):
    with running(folder) as (_, path):
        status, parent = path.stat(), path.parent.stat()
    assert path.is_relative_to(folder)
    assert stat.S_ISSOCK(status.st_mode)
    assert status.st_mode & 0o022 == 0, "who may write to a socket may connect to it"
    assert stat.S_IMODE(parent.st_mode) == 0o700


@pytest.mark.long
def test_in_a_folder_that_is_too_long_for_a_socket_it_makes_a_short_one(folder):
    """As in a container of YARN, where Spark names the container's folder."""
    long = Path(folder, "application_" + "0" * 50, "container_" + "0" * 50)
    long.mkdir(parents=True)
    with running(long, TMPDIR=folder) as (_, path):
        assert path.is_relative_to(folder)
        assert len(os.fsencode(path)) <= LONGEST_PATH
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


@pytest.mark.parametrize("how", first_of(["its JVM has gone", "SIGTERM"]))
def test_it_removes_its_folder_at_its_end(folder, how):
    with running(folder) as (daemon, path):
        assert path.exists()
        if how == "SIGTERM":
            daemon.terminate()
        else:
            daemon.stdin.close()
        daemon.wait(LONG)
    assert list(Path(folder).iterdir()) == []


@pytest.mark.long
def test_it_removes_the_folder_of_one_that_was_killed(folder):
    with running(folder) as (daemon, path):
        daemon.kill()
        daemon.wait(LONG)
        assert path.exists()
    with running(folder) as (_, other):
        assert not path.parent.exists()
        assert other.exists()


def test_what_workers_run_is_loaded_before_they_are_forked():
    code = (
        "import sys; from sparkrelay.runtime.worker import daemon; daemon.load_operators(); "
        "before = {*sys.modules}; "
        "from sparkrelay.operators.aggregate import run as a; from sparkrelay.operators.latest import run as b; "
        "from sparkrelay.operators.stream_join import run as c; print({*sys.modules} - before)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "set()"
