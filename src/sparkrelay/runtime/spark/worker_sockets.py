"""The folder of Spark's own Unix sockets, whose paths may be too long, and the errors about it.

Spark makes them in ``spark.python.unix.domain.socket.dir`` or, without it, in ``java.io.tmpdir``: for accumulators and
collected rows in the driver, for Python workers in each executor. The setting is one path for all hosts, and Spark does
not create it. So it is set only where the driver's own temporary folder cannot be used; our worker daemon finds a
folder on each executor's host by itself (``worker.daemon``).

With ``spark.io.encryption.enabled`` an executor's JVM, too, makes Unix sockets: Python workers read broadcasts by them.
On YARN their paths are always too long, so without the setting those sessions use TCP, where both ends know a secret.
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

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "UNIX_SOCKETS",
    "is_long_socket_path",
    "jvms_sockets_too_long",
    "long_socket_path",
    "require_short_folder",
    "socket_settings",
]

#: The Spark setting by which Python workers are reached by Unix sockets instead of TCP.
UNIX_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
#: How many bytes Spark's setting may have: Spark refuses more than 61 characters.
_LONGEST_FOLDER: Final = min(61, LONGEST_PATH - 1 - SPARK_SOCKET_BYTES)
#: What Spark's own Python daemon says, and the JVM. Sockets of the user's steps are not meant.
_TOO_LONG: Final = re.compile(
    r"Error from python worker:.*\bAF_UNIX path too long\s*\n\s*PYTHONPATH was:"
    r"|java\.net\.SocketException: Unix domain path too long",
    re.DOTALL,
)


def socket_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the setting with which no Unix socket of Spark's has too long a path; empty where it is not needed.

    Args:
        settings: those of the session to be made; its JVM runs already.

    Raises:
        ConfigException: the user's own setting names a path that is too long.
        NoSocketFolder: no temporary folder of this host can be used.
    """
    if SparkContext._active_spark_context is not None:
        return {}
    # Only the JVM knows what spark-submit or a file has set.
    conf = SparkConf().setAll(list(settings.items()))
    if (conf.get(UNIX_SOCKETS) or "false").lower() != "true":
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
    """Return whether Unix sockets of executors' JVMs would have too long a path."""
    encrypted = (conf.get("spark.io.encryption.enabled") or "false").lower() == "true"
    return encrypted and (conf.get("spark.master") or "").startswith("yarn") and not conf.get(SPARK_DIR)


def require_short_folder(folder: str) -> None:
    """Refuse a folder of the user's that is too long for Spark's Unix sockets.

    Raises:
        ConfigException: it is; the message names it and the limit.
    """
    length = len(os.fsencode(folder))
    if length > _LONGEST_FOLDER:
        raise ConfigException(
            f"Spark setting {SPARK_DIR}={folder} has {length} bytes, and at most {_LONGEST_FOLDER} are possible: a "
            f"Unix socket's path is limited to {LONGEST_PATH}. Leave it out, or name a shorter path that exists on "
            "each host"
        )


@functools.cache
def _folder_of(pid: int, temporary: str) -> str:
    """Make the folder of this process; it is removed when the process ends."""
    folders = temporary_folders(temporary)
    remove_abandoned(folders)
    folder = SocketFolder(folders, LONGEST_PATH - 1 - _LONGEST_FOLDER)

    def remove() -> None:
        # A fork runs this, too.
        if os.getpid() == pid:
            folder.close()

    atexit.register(remove)
    return str(folder.path)


def is_long_socket_path(text: str) -> bool:
    """Return whether a failed job's error says that the path of a Unix socket of Spark's is too long."""
    return _TOO_LONG.search(text) is not None


def long_socket_path(job: str) -> str:
    """Say that a Unix socket of Spark's own has too long a path, and how to shorten it.

    Args:
        job: the Spark job that failed by it.
    """
    return (
        f"the Spark job {job!r} failed: Spark made a Unix socket with a path of more than {LONGEST_PATH} bytes, in the "
        f"executor's temporary folder (java.io.tmpdir) or in {SPARK_DIR}. Set {SPARK_DIR} to a folder on a path of at "
        f"most {_LONGEST_FOLDER} bytes that exists on each host, such as /tmp; or set {UNIX_SOCKETS}"
        "=false"
    )
