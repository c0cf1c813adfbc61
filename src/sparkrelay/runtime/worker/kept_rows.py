"""Rows of a micro-batch for the function of ``foreachBatch`` on the driver, from the files that workers wrote.

A file exists from its micro-batch's job until the next one at the latest. After a crash the same rows are made again.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkrelay.errors import StreamsException
from sparkrelay.runtime.worker.context import drain, laid_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparkrelay.runtime.contract.commands import KeptRows


def read_kept_rows(kept: KeptRows, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, as a step of a placed source; raise StreamsException if it was changed."""
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
