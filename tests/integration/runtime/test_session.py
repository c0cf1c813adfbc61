"""A session as `spark_session` makes it, in a process of its own."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.short_spark import SHORT_LIVED

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
for path in Path(sys.argv[1]).rglob("*.sock"):
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


LONG_FOLDER = """
import sys
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from sparkrelay import spark_session
from sparkrelay.errors import ConfigException
from sparkrelay.runtime.spark.worker_sockets import is_long_socket_path

java = f"{sys.argv[2]} -Djava.io.tmpdir={sys.argv[1]}"
settings = {"spark.master": "local[1]", "spark.ui.enabled": "false", "spark.driver.extraJavaOptions": java}
try:
    spark_session("refused", **settings, **{"spark.python.unix.domain.socket.dir": sys.argv[1]})
except ConfigException as error:
    print(error)
spark = spark_session("long paths", **settings, **{"spark.local.dir": sys.argv[1]})
try:
    java = SparkContext._jvm.java
    family = java.net.StandardProtocolFamily.UNIX
    java.nio.channels.ServerSocketChannel.open(family).bind(java.net.UnixDomainSocketAddress.of(sys.argv[1]))
except Py4JJavaError as error:
    print(is_long_socket_path(error.java_exception.toString()))
print(spark.range(3).mapInArrow(lambda batches: batches, "id long").count())
print(spark.conf.get("spark.python.unix.domain.socket.dir"))
spark.stop()
"""


@pytest.mark.long
def test_a_temporary_folder_that_is_too_long_for_a_socket_is_not_used(tmp_path):
    """On a real session: in YARN's containers every temporary folder is as long, and no session began."""
    folder = tmp_path / ("application_" + "0" * 50) / ("container_" + "0" * 50)
    folder.mkdir(parents=True)
    run = subprocess.run(
        [sys.executable, "-c", LONG_FOLDER, str(folder), SHORT_LIVED["spark.driver.extraJavaOptions"]],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"TMPDIR": str(folder)},
    )
    assert run.returncode == 0, run.stderr
    refusal, javas_words, rows, sockets = run.stdout.splitlines()
    words = f"spark.python.unix.domain.socket.dir={folder} has {len(str(folder))} bytes, but at most 61 are possible"
    assert words in refusal
    assert javas_words == "True"
    assert rows == "3"
    assert not Path(sockets).exists(), "it is removed at the end"
