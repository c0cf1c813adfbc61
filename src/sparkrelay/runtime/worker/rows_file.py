"""Files for rows of a leg's task, in a directory of their micro-batch on the process's host.

A file is written under a temporary name, renamed, and read on the same host. It need not survive a crash: the batch
then runs again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from sparkrelay.errors import StreamsException
from sparkrelay.runtime.contract.commands import KeptRows
from sparkrelay.runtime.worker.context import laid_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkrelay.runtime.contract.commands import TaskCommand


def leg_file(home: str, leg: str, task: TaskCommand) -> Path:
    """Return the file in a directory for a leg's data of a task's micro-batch."""
    # Names of legs may have characters that file names cannot have, and may be longer.
    return Path(home) / f"{task.task}-{hashlib.sha256(leg.encode()).hexdigest()}.arrow"


def remove_earlier(home: Path) -> None:
    """Remove the directories of earlier micro-batches and former processes beside a micro-batch's, where possible.

    The worker of a cancelled micro-batch may continue for a moment: it must not remove later ones.
    """
    own, _, number = home.name.rpartition("-")

    def is_later(name: str) -> bool:
        prefix, _, other = name.rpartition("-")
        return prefix == own and number.isdecimal() and other.isdecimal() and int(other) > int(number)

    with contextlib.suppress(OSError):
        for path in list(home.parent.iterdir()):
            if path != home and not is_later(path.name):
                shutil.rmtree(path, ignore_errors=True)


class RowsFile:
    """Writes rows of a task and a leg to a file in parts, so they are never all in memory.

    A context manager: an unfinished file never gets its final name. ``directory`` belongs to this micro-batch; earlier
    ones beside it are removed. ``what`` names the rows in errors.
    """

    def __init__(self, directory: str, leg: str, task: TaskCommand, schema: pa.Schema, what: str) -> None:
        self._home = Path(directory)
        self._what = what
        self._path = leg_file(directory, leg, task)
        self._schema = schema
        self._open = contextlib.ExitStack()
        self._stream: pa.ipc.RecordBatchStreamWriter | None = None
        self._rows = 0
        remove_earlier(self._home)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._open.close()

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows with the columns of the schema. Raises StreamsException if that fails."""
        if not rows.num_rows:
            return
        with self._named():
            if self._stream is None:
                self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
                file = self._open.enter_context(pa.OSFile(str(self._unfinished), "wb"))
                self._stream = self._open.enter_context(pa.ipc.new_stream(file, self._schema))
            self._stream.write_batch(laid_out(rows.columns, self._schema))
        self._rows += rows.num_rows

    def finish(self) -> KeptRows | None:
        """Rename the file, and return its path and row count; None without rows. Raises StreamsException."""
        if not self._rows:
            return None
        with self._named():
            self._open.close()
            self._unfinished.replace(self._path)
        return KeptRows(str(self._path), self._rows)

    @property
    def _unfinished(self) -> Path:
        return self._path.with_suffix(f".{os.getpid()}")

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StreamsException(f"{self._what} cannot be written to {self._path}: {error}") from error
