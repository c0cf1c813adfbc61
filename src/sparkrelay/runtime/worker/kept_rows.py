"""Rows of a micro-batch that wait in files of their process for the function of ``foreachBatch``, on the driver.

A file is written whole, under another name first, and read on the host of the process that wrote it. It is there from
the job of its micro-batch until the next one at the latest: nothing of it has to survive a crash, since the same rows
are made again then.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkrelay.errors import StreamsException
from sparkrelay.records.arrow_buffers import as_type
from sparkrelay.runtime.contract.commands import KeptRows
from sparkrelay.runtime.worker.context import drain, earlier_than, laid_out, leg_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sparkrelay.runtime.contract.commands import TaskCommand

__all__ = ["keep_rows", "read_kept_rows", "remove_kept_rows", "remove_step"]


def keep_rows(
    directory: str, leg: str, task: TaskCommand, batches: Sequence[pa.RecordBatch], schema: pa.Schema
) -> KeptRows | None:
    """Write a task's rows to a file; None if there are none.

    Args:
        directory: of this micro-batch alone. Those of earlier ones beside it are removed.
        leg: whose rows they are.
        task: the same.
        batches: the rows, with the columns of ``schema``.
        schema: of the file.

    Raises:
        StreamsException: the file cannot be written.
    """
    home = Path(directory)
    _remove(lambda: earlier_than(home))
    rows = sum(batch.num_rows for batch in batches)
    if not rows:
        return None
    path = leg_file(directory, leg, task)
    unfinished = path.with_suffix(f".{os.getpid()}")
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with pa.OSFile(str(unfinished), "wb") as file, pa.ipc.new_stream(file, schema) as stream:
            for batch in batches:
                stream.write_batch(laid_out(batch.columns, schema))
        unfinished.replace(path)
    except OSError as error:
        raise StreamsException(
            f"the rows of task {task.task} for foreachBatch() cannot be written to {path}: {error}"
        ) from error
    return KeptRows(str(path), rows)


def read_kept_rows(kept: KeptRows, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows that :func:`keep_rows` has written; a step of a placed source of one Spark partition.

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
