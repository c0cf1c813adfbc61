"""Spark's Python worker daemon with our modules already loaded.

Spark forks its Python workers from one daemon process. Each would import Arrow, numba and the Kafka client again, for
about three seconds of a core; a first micro-batch of several legs starts a dozen workers. Forked from here they have
everything, and share its memory. ``spark.python.daemon.module`` names this module; it must be importable on executors.

Spark chooses a folder for the daemon's Unix socket, by default the JVM's temporary folder. In YARN's containers that
path is too long for a socket. So the daemon makes a short, private folder, and reports the socket's path to the JVM.
"""

import contextlib
import gc
import importlib.util
import os
import pkgutil
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

from sparkrelay.runtime.worker.own.import_path import prefer_folders

if __name__ == "__main__":
    # Before PySpark is imported.
    prefer_folders()

from pyspark import daemon, worker

import sparkrelay.operators
import sparkrelay.runtime.worker.publish
import sparkrelay.runtime.worker.restore
from sparkrelay.observe.logs import configure_worker_logging
from sparkrelay.own_files import keep_others_from_writing
from sparkrelay.records import compile_kernels
from sparkrelay.runtime.contract.socket_folders import (
    SPARK_SOCKET_BYTES,
    SocketFolder,
    remove_abandoned,
    temporary_folders,
)
from sparkrelay.runtime.worker.own.memory import release_unused_memory
from sparkrelay.runtime.worker.resident import writes_to

#: What Spark passes to a daemon: whether it listens on a Unix socket, and in which folder.
_UNIX_SOCKET = "PYTHON_UNIX_DOMAIN_ENABLED"
_FOLDER = "PYTHON_WORKER_FACTORY_SOCK_DIR"

#: Operators that are loaded when they are used: they import PySpark's own DataFrame code.
_LOADED_LATER = frozenset({"process"})

_worker = daemon.worker
_main = worker.main


def load_operators() -> None:
    """Import what workers run of every operator, for the workers to come."""
    for found in pkgutil.iter_modules(sparkrelay.operators.__path__):
        module = f"{sparkrelay.operators.__name__}.{found.name}"
        if found.ispkg and found.name not in _LOADED_LATER and importlib.util.find_spec(f"{module}.run"):
            importlib.import_module(f"{module}.run")  # noqa: TID251 - names of our own folders


def _known_output(infile: Any, outfile: BinaryIO) -> None:
    """Run a worker's task; a resident step flushes its rows before it waits for more."""
    writes_to(outfile)
    _main(infile, outfile)
    release_unused_memory()


def _quiet_worker(sock: socket.socket, authenticated: bool) -> int:
    """Run a worker; if its JVM is gone, as at every stop, end without a traceback on the user's screen."""
    try:
        return int(_worker(sock, authenticated))
    except (BrokenPipeError, ConnectionResetError):
        return 1


@contextlib.contextmanager
def _short_socket_path() -> Iterator[None]:
    """Make the daemon's Unix socket in a folder of its own. Raises NoSocketFolder if none is usable."""
    if os.environ.get(_UNIX_SOCKET, "false").lower() != "true":
        yield
        return
    folders = temporary_folders(os.environ.get(_FOLDER))
    remove_abandoned(folders)
    with SocketFolder(folders, SPARK_SOCKET_BYTES) as folder:
        os.environ[_FOLDER] = str(folder.path)
        yield


if __name__ == "__main__":
    daemon.worker = _quiet_worker
    worker.main = _known_output
    configure_worker_logging(os.environ)
    compile_kernels()
    load_operators()
    gc.collect()
    # Garbage collections in the workers need not visit these objects, nor copy their pages.
    gc.freeze()
    # Anybody who connects to the Unix socket gets a worker that runs any code, without a secret.
    keep_others_from_writing()
    # Spark installs its handler after making the socket; the folder must be removed before that too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with _short_socket_path():
        daemon.manager()
