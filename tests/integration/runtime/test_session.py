"""A session as `spark_session` makes it, in a process of its own."""

import subprocess
import sys
import tempfile

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SCRIPT = """
import contextlib, os, sys
from pathlib import Path
from sparkrelay import spark_session

settings = {"spark.master": "local[1]", "spark.ui.enabled": "false", "spark.python.unix.domain.socket.dir": sys.argv[1]}
spark = spark_session("sockets", **settings)
rows = spark.range(1).mapInArrow(lambda batches: batches, "id long")
assert rows.collect()[0].id == 0
modes = []
for path in Path(sys.argv[1]).iterdir():
    # A worker that is done with its socket removes it.
    with contextlib.suppress(FileNotFoundError):
        modes.append(oct(path.stat().st_mode))
print(*modes)
print(oct(os.umask(0)))
spark.stop()
"""


@pytest.mark.long
def test_nobody_else_can_connect_to_sparks_sockets_under_any_umask():
    """Without a secret, whoever connects has a worker run what it sends, or has the driver unpickle it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a socket's path is short
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT, folder], capture_output=True, text=True, check=False, umask=0
        )
    assert run.returncode == 0, run.stderr
    sockets, umask = run.stdout.splitlines()
    assert len(sockets.split()) > 1, "those of the driver and of the daemon"
    assert set(sockets.split()) == {"0o140755"}
    assert umask == "0o0", "the user's own is as it was"
