"""Joined rows of tables that other legs keep, before and after a micro-batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.operators.table.changes import DELETIONS, NEW, OLD
from sparkrelay.runtime.contract.specs import StepSpec
from sparkrelay.runtime.worker.task_steps import each_table, never_applied

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from sparkrelay.operators.table.run import TableRunner
    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.state import LookedUp

#: Earlier than every timestamp.
NEVER: Final = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class JoinedTables:
    """A tree of joins.

    Attributes:
        how: ``inner``, ``left``, ``right`` or ``full``.
        left: index of the left table, or a join.
        right: index of the right table, or a join.
    """

    how: str
    left: JoinedTables | int
    right: JoinedTables | int


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table or join for some keys; missing rows have null columns.

    Attributes:
        were: columns without the key's, before the micro-batch; of a join the left side's, then the right one's, then
            for each side that need not have a row whether it had one.
        are: the same after it.
        was: which keys had a row before.
        is_: which keys have one after.
        changed: which rows changed.
        times: timestamps of the rows after the micro-batch, and of deletions in it; else ``NEVER``.
    """

    were: tuple[pa.Array, ...]
    are: tuple[pa.Array, ...]
    was: NDArray[np.bool_]
    is_: NDArray[np.bool_]
    changed: NDArray[np.bool_]
    times: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRunner(StepSpec):
    """A join of tables that other legs keep.

    Attributes:
        output: Arrow schema of output rows; the last column is the kind of change, or the tombstone flag.
    """

    output: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the changed rows, one task at a time."""
        yield from each_table(self, batches, self.changed)

    def changed(self, task: TaskCommand) -> pa.RecordBatch:
        """Return the changed rows of a task."""
        raise NotImplementedError

    def parts(
        self, was: NDArray[np.bool_], is_: NDArray[np.bool_], changed: NDArray[np.bool_]
    ) -> list[tuple[NDArray[np.bool_], bool, int | bool]]:
        """Return which rows to emit: a selection, whether as they are now, and the value of their last column."""
        if hidden_columns.CHANGE in self.output.names:
            return [(changed & was, False, OLD), (changed & is_, True, NEW)]
        return [(changed & is_, True, False), (changed & was & ~is_, False, True)]


def touched_keys(spec: StepSpec, tables: Iterable[TableRunner], task: TaskCommand) -> pa.Array:
    """Return the sorted keys that the micro-batch wrote in tables; their rows may be unchanged."""
    nothing = pa.array([], pa.binary())
    before = [_found(spec, side, task, nothing) for side in tables]
    touched = [found.before.column("key").cast(pa.binary()) for found in before if found.before is not None]
    return pc.unique(pa.chunked_array(touched or [nothing])).sort()


def joined_rows(
    spec: StepSpec, tables: Iterable[TableRunner], joined: JoinedTables | int, task: TaskCommand, keys: pa.Array
) -> Rows:
    """Return the rows of a join, or of one table, for keys."""
    return _joined(joined, [_rows(spec, side, task, keys) for side in tables])


def _found(spec: StepSpec, side: TableRunner, task: TaskCommand, keys: pa.Array) -> LookedUp:
    """Look up keys in a table, with the micro-batch's changes.

    Raises:
        StoreOutOfStepException: the micro-batch has input of the table that was not applied, or was rolled back.
    """
    found = side.found(spec, task, keys)
    if found.before is None and any(partition.topic in side.topics for partition in task.ranges):
        raise never_applied(task, side.store)
    return found


def _rows(spec: StepSpec, side: TableRunner, task: TaskCommand, keys: pa.Array) -> Rows:
    """Return the rows of a table for keys, before and after the micro-batch."""
    found = _found(spec, side, task, keys)
    now = found.values.cast(pa.binary())
    were = now
    if found.before is not None:
        at = pc.index_in(keys, value_set=found.before.column("key").cast(pa.binary()))
        were = pc.if_else(pc.is_valid(at), found.before.column("old").cast(pa.binary()).take(at), now)
    codec = side.layout.codec
    *columns, times = codec.results(now)
    *before, _ = codec.results(were)
    same = pc.fill_null(pc.equal(now, were), False)
    is_, was = (_flags(pc.is_valid(values)) for values in (now, were))
    newest = pc.fill_null(times, NEVER).to_numpy(zero_copy_only=False).copy()
    if (deletions := found.beside.get(DELETIONS)) is not None:
        gone = pc.index_in(keys, value_set=deletions.column("key"))
        deleted = pc.fill_null(deletions.column("time").take(gone), NEVER).to_numpy(zero_copy_only=False)
        newest = np.where(is_, newest, deleted)
    changed = ~(_flags(same) | ~(is_ | was))
    # The count of a missing group would be 0, not null.
    held_before, held_now = _where(was, before), _where(is_, columns)
    return Rows(held_before, held_now, was, is_, changed, newest)


def _joined(join: JoinedTables | int, tables: list[Rows]) -> Rows:
    if isinstance(join, int):
        return tables[join]
    left, right = _joined(join.left, tables), _joined(join.right, tables)
    was, is_ = _present(join.how, left.was, right.was), _present(join.how, left.is_, right.is_)
    optional = {"left": (right,), "right": (left,), "full": (left, right)}.get(join.how, ())
    return Rows(
        _where(was, left.were, right.were, [pa.array(side.was) for side in optional]),
        _where(is_, left.are, right.are, [pa.array(side.is_) for side in optional]),
        was,
        is_,
        (was | is_) & (left.changed | right.changed),
        np.where(was | is_, np.maximum(left.times, right.times), NEVER),
    )


def _present(how: str, left: NDArray[np.bool_], right: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which keys have a joined row."""
    return {"inner": left & right, "left": left, "right": right, "full": left | right}[how]


def _where(there: NDArray[np.bool_], *sides: Iterable[pa.Array]) -> tuple[pa.Array, ...]:
    """Return the columns of all sides, null where ``there`` is false."""
    columns = tuple(column for side in sides for column in side)
    if there.all():
        return columns
    kept = pa.array(there)
    return tuple(pc.if_else(kept, column, pa.scalar(None, column.type)) for column in columns)


def _flags(values: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=bool)
