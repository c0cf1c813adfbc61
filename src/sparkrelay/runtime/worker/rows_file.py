"""Files for rows of a leg's task, in a directory of their micro-batch on the process's host.

A file is written under a temporary name, renamed, and read on the same host. It exists from its micro-batch's job until
the next one at the latest. It need not survive a crash: the batch then runs again.
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
from sparkrelay.runtime.worker.context import drain, laid_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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


def read_kept_rows(kept: KeptRows, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows, as a step of a placed source; raise StreamsException if it was changed."""
    drain(batches)
    count = 0
    try:
        with pa.OSFile(kept.path, "rb") as file, pa.ipc.open_stream(file) as stream:
            for batch in stream:
                count += batch.num_rows
                yield laid_out((batch.column(name) for name in schema.names), schema)
    except (OSError, pa.ArrowException, KeyError) as error:
        raise StreamsException(
            f"the rows of this micro-batch cannot be read from {kept.path}: {error}. The DataFrame of foreachBatch() "
            "is for its function alone: they are removed once that has returned"
        ) from error
    if count != kept.rows:
        raise StreamsException(f"{kept.path} has {count} rows, not {kept.rows}: something else has written to it")


def remove_step(home: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Remove all rows below a directory, as a step of a placed source; yield nothing."""
    drain(batches)
    remove_kept_rows(Path(home))
    yield from ()


def remove_kept_rows(home: Path) -> None:
    """Remove the rows of all micro-batches below a directory where possible."""
    with contextlib.suppress(OSError):
        for path in list(home.iterdir()):
            shutil.rmtree(path, ignore_errors=True)
