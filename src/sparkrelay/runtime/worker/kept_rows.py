"""Rows of a micro-batch that wait in files of their process for the function of ``foreachBatch``, on the driver.

A file is written whole, under another name first, and read on the host of the process that wrote it. It is there from
the job of its micro-batch until the next one at the latest: nothing of it has to survive a crash, since the same rows
are made again then.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from sparkrelay.errors import StreamsException
from sparkrelay.records.arrow_buffers import as_type
from sparkrelay.runtime.contract.commands import KeptRows
from sparkrelay.runtime.worker.context import drain, earlier_than, laid_out, leg_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sparkrelay.runtime.contract.commands import TaskCommand

__all__ = ["KeptRowsFile", "read_kept_rows", "remove_kept_rows", "remove_step"]


class KeptRowsFile:
    """Writes the rows of a task and a leg to a file, a part at a time; they are never all in memory.

    Use it as a context manager: what is not finished by its end is closed, and no file of that name appears.

    Args:
        directory: of this micro-batch alone. Those of earlier ones beside it are removed.
        leg: the leg.
        task: the task.
        schema: of the file.
    """

    def __init__(self, directory: str, leg: str, task: TaskCommand, schema: pa.Schema) -> None:
        self._home = Path(directory)
        self._task = task.task
        self._path = leg_file(directory, leg, task)
        self._schema = schema
        self._open = contextlib.ExitStack()
        self._stream: pa.ipc.RecordBatchStreamWriter | None = None
        self._rows = 0
        _remove(lambda: earlier_than(self._home))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._open.close()

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows, which have the columns of the schema.

        Raises:
            StreamsException: the file cannot be written.
        """
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
        """Give the file its name, and return what is in it; None if there are no rows.

        Raises:
            StreamsException: the file cannot be written.
        """
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
            raise StreamsException(
                f"the rows of task {self._task} for foreachBatch() cannot be written to {self._path}: {error}"
            ) from error


def read_kept_rows(kept: KeptRows, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows that :class:`KeptRowsFile` has written; a step of a placed source of one Spark partition.

    Raises:
        StreamsException: they are not there any more, or not as they were written.
    """
    drain(batches)
    count = 0
    try:
        with pa.OSFile(kept.path, "rb") as file, pa.ipc.open_stream(file) as stream:
            for batch in stream:
                count += batch.num_rows
                yield pa.RecordBatch.from_arrays(
                    [as_type(batch.column(field.name), field.type) for field in schema], schema=schema
                )
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
    """Remove the rows of all micro-batches below a directory, as far as that is possible."""
    _remove(lambda: list(home.iterdir()))


def _remove(find: Callable[[], list[Path]]) -> None:
    try:
        old = find()
    except OSError:
        return
    for path in old:
        shutil.rmtree(path, ignore_errors=True)
