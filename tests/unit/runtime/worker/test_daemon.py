"""The daemon that Spark's Python workers are forked from: who may have a worker."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def folder():
    """Not pytest's own: the path of a socket has at most 108 bytes."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield folder


def test_nobody_else_can_connect_to_the_daemon_under_any_umask(folder):
    environment = {"PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SOCK_DIR": folder}
    with subprocess.Popen(
        [sys.executable, "-m", "sparkrelay.runtime.worker.daemon"],
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        umask=0,
    ) as daemon:
        length = int.from_bytes(daemon.stdout.read(4), "big")
        path = Path(daemon.stdout.read(length).decode())
        status = path.stat()
        daemon.terminate()
    assert stat.S_ISSOCK(status.st_mode)
    assert status.st_mode & 0o022 == 0, "who may write to a socket may connect to it"
