"""The folder of Spark's own Unix sockets, whose paths may be too long, and the errors about it.

Spark makes them in ``spark.python.unix.domain.socket.dir``, by default ``java.io.tmpdir``: in the driver for
accumulators and collected rows, in each executor for Python workers. The setting is one path for all hosts, which Spark
does not create. So it is set only if the driver's temporary folder cannot be used; our worker daemon finds a folder on
each executor's host (``worker.daemon``).

With ``spark.io.encryption.enabled`` an executor's JVM also makes Unix sockets, for broadcasts. On YARN their paths are
always too long, so without the setting such sessions use TCP, where both ends share a secret.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark import SparkConf, SparkContext

from sparkrelay.errors import ConfigException
from sparkrelay.runtime.contract.socket_folders import (
    LONGEST_PATH,
    SPARK_DIR,
    SPARK_SOCKET_BYTES,
    SocketFolder,
    remove_abandoned,
    temporary_folders,
    why_unusable,
)
from sparkrelay.runtime.spark.unusable_session import is_on

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The Spark setting to reach Python workers by Unix sockets instead of TCP.
UNIX_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
#: Longest path of the folder, bytes: Spark refuses more than 61 characters.
_LONGEST_FOLDER: Final = min(61, LONGEST_PATH - 1 - SPARK_SOCKET_BYTES)
#: The error of Spark's own Python daemon, and that of the JVM; not those about sockets of the user's steps.
_TOO_LONG: Final = re.compile(
    r"Error from python worker:.*\bAF_UNIX path too long\s*\n\s*PYTHONPATH was:"
    r"|java\.net\.SocketException: Unix domain path too long",
    re.DOTALL,
)


def socket_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the setting that keeps the paths of Spark's Unix sockets short; empty if it is not needed.

    The session is not made yet, but its JVM is running.

    Raises:
        ConfigException: the path in the user's own setting is too long.
        NoSocketFolder: no temporary folder of this host can be used.
    """
    if SparkContext._active_spark_context is not None:
        return {}
    # Only the JVM knows settings of spark-submit or a file.
    conf = SparkConf().setAll(list(settings.items()))
    if not is_on(conf, UNIX_SOCKETS):
        return {}
    if given := conf.get(SPARK_DIR):
        require_short_folder(given)
        return {}
    if jvms_sockets_too_long(conf):
        return {UNIX_SOCKETS: "false"}
    jvm: Any = SparkContext._jvm
    temporary = str(jvm.java.lang.System.getProperty("java.io.tmpdir"))
    if why_unusable(Path(temporary), SPARK_SOCKET_BYTES) is None:
        return {}
    return {SPARK_DIR: _folder_of(os.getpid(), temporary)}


def jvms_sockets_too_long(conf: SparkConf) -> bool:
    """Return whether the paths of Unix sockets of executors' JVMs would be too long."""
    encrypted = is_on(conf, "spark.io.encryption.enabled")
    return encrypted and (conf.get("spark.master") or "").startswith("yarn") and not conf.get(SPARK_DIR)


def require_short_folder(folder: str) -> None:
    """Raise ConfigException if the path of a user's folder is too long for Spark's Unix sockets."""
    length = len(os.fsencode(folder))
    if length > _LONGEST_FOLDER:
        raise ConfigException(
            f"Spark setting {SPARK_DIR}={folder} has {length} bytes, but at most {_LONGEST_FOLDER} are possible: the "
            f"path of a Unix socket is limited to {LONGEST_PATH}. Leave it out, or use a shorter path that exists on "
            "each host"
        )


@functools.cache
def _folder_of(pid: int, temporary: str) -> str:
    """Make the folder of this process, which is removed at exit."""
    folders = temporary_folders(temporary)
    remove_abandoned(folders)
    folder = SocketFolder(folders, LONGEST_PATH - 1 - _LONGEST_FOLDER)

    def remove() -> None:
        # Forks run this, too.
        if os.getpid() == pid:
            folder.close()

    atexit.register(remove)
    return str(folder.path)


def is_long_socket_path(text: str) -> bool:
    """Return whether a job failed because the path of one of Spark's Unix sockets is too long."""
    return _TOO_LONG.search(text) is not None


def long_socket_path(job: str) -> str:
    """Return the message for a Spark job that failed because of that."""
    return (
        f"the Spark job {job!r} failed: Spark made a Unix socket with a path of more than {LONGEST_PATH} bytes, in the "
        f"executor's temporary folder (java.io.tmpdir) or in {SPARK_DIR}. Set {SPARK_DIR} to a folder on a path of at "
        f"most {_LONGEST_FOLDER} bytes that exists on each host, such as /tmp; or set {UNIX_SOCKETS}=false"
    )
