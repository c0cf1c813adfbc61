"""The step that joins tables: what has changed of the rows that are joined of several tables of one key.

Other legs keep the tables, and have run in earlier waves of the same micro-batch. Their stores hold the rows as they
are; what they were stands in the journals, for the keys that the micro-batch has changed. So a joined row is known as
it was and as it is without being stored itself, as in ``KTable.join`` of Kafka Streams, whose processors ask the other
side's store. A micro-batch that changes both sides of a key makes one change of the joined row.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.operators.history.run import newest_of
from sparkrelay.operators.table.changes import DELETIONS, NEW, OLD
from sparkrelay.operators.table.codecs import codec_of
from sparkrelay.records.keys import key_columns
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.worker.context import laid_out
from sparkrelay.runtime.worker.task_steps import each_table, look_up, never_applied

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.runtime.contract.specs import JoinedTables, StepSpec, TableJoinSpec, TableSide
    from sparkrelay.state import LookedUp

__all__ = ["NEVER", "Rows", "joined_rows", "table_join_leg", "touched_keys"]

#: Before every time that a row can have.
NEVER: Final = np.iinfo(np.int64).min


def table_join_leg(spec: TableJoinSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what the micro-batch has changed of the joined rows, task by task."""
    yield from each_table(spec, batches, functools.partial(_changed, spec))


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table or of a join, one for each key that is looked at; where there is none, columns are null.

    Attributes:
        were: columns by name, as they were before the micro-batch.
        are: as they are.
        was: for which keys there was a row.
        is_: for which there is one.
        changed: for which something is another than it was.
        times: timestamps of the rows as they are, and of deletions in the micro-batch; ``NEVER`` for others.
    """

    were: Mapping[str, pa.Array]
    are: Mapping[str, pa.Array]
    was: NDArray[np.bool_]
    is_: NDArray[np.bool_]
    changed: NDArray[np.bool_]
    times: NDArray[np.int64]


def _changed(spec: TableJoinSpec, task: TaskCommand) -> pa.RecordBatch:
    keys = touched_keys(spec, spec.tables, task)
    rows = joined_rows(spec, spec.tables, spec.joined, task, keys)
    changed = rows.changed & (rows.was | rows.is_)
    if spec.changes:
        kinds = ((OLD, changed & rows.was, rows.were), (NEW, changed & rows.is_, rows.are))
        parts = [_laid_out(spec, task, keys, rows.times, columns, which, kind) for kind, which, columns in kinds]
    else:
        kept = ((False, changed & rows.is_, rows.are), (True, changed & rows.was & ~rows.is_, rows.were))
        parts = [_laid_out(spec, task, keys, rows.times, columns, which, gone) for gone, which, columns in kept]
    return pa.concat_batches(parts)


def touched_keys(spec: StepSpec, tables: Iterable[TableSide], task: TaskCommand) -> pa.Array:
    """Return the keys of tables that the micro-batch has written, sorted: not all of their rows need have changed."""
    nothing = pa.array([], pa.binary())
    before = [_found(spec, side, task, nothing) for side in tables]
    touched = [found.before.column("key").cast(pa.binary()) for found in before if found.before is not None]
    return pc.unique(pa.chunked_array(touched or [nothing])).sort()


def joined_rows(
    spec: StepSpec, tables: Iterable[TableSide], joined: JoinedTables | int, task: TaskCommand, keys: pa.Array
) -> Rows:
    """Return the rows that a join of tables, or one table, has for keys."""
    return _joined(joined, [_rows(spec, side, task, keys) for side in tables])


def _found(spec: StepSpec, side: TableSide, task: TaskCommand, keys: pa.Array) -> LookedUp:
    """Return what a table holds for keys, and what the micro-batch has changed of it.

    Raises:
        StoreOutOfStepException: it has input of the table, and that is not in, or was taken back.
    """
    found = (look_up if side.state.history_ms is None else newest_of)(spec, task, side.state.store, side.contents, keys)
    if found.before is None and any(partition.topic in side.state.topics for partition in task.ranges):
        raise never_applied(task, side.state.store)
    return found


def _rows(spec: StepSpec, side: TableSide, task: TaskCommand, keys: pa.Array) -> Rows:
    """Return what a table holds for keys, and what it held before the micro-batch."""
    found = _found(spec, side, task, keys)
    now = found.values.cast(pa.binary())
    were = now
    if found.before is not None:
        at = pc.index_in(keys, value_set=found.before.column("key").cast(pa.binary()))
        were = pc.if_else(pc.is_valid(at), found.before.column("old").cast(pa.binary()).take(at), now)
    codec = codec_of(side.state)
    names = _columns(side)
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
    # A count of nothing would be 0.
    held_before, held_now = (
        _where(there, dict(zip(names, some, strict=True))) for there, some in ((was, before), (is_, columns))
    )
    return Rows(held_before, held_now, was, is_, changed, newest)


def _columns(side: TableSide) -> list[str]:
    """Return the names of a table's columns behind its key."""
    names = side.state.output.names[len(side.state.keys) :]
    return [name for name in names if not name.startswith(hidden_columns.PREFIX)]


def _joined(join: JoinedTables | int, tables: list[Rows]) -> Rows:
    if isinstance(join, int):
        return tables[join]
    left, right = _joined(join.left, tables), _joined(join.right, tables)
    was, is_ = _present(join.how, left.was, right.was), _present(join.how, left.is_, right.is_)
    return Rows(
        _where(was, left.were, right.were),
        _where(is_, left.are, right.are),
        was,
        is_,
        (was | is_) & (left.changed | right.changed),
        np.where(was | is_, np.maximum(left.times, right.times), NEVER),
    )


def _present(how: str, left: NDArray[np.bool_], right: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return for which keys there is a joined row."""
    return {"inner": left & right, "left": left, "right": right, "full": left | right}[how]


def _where(there: NDArray[np.bool_], *sides: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Return the columns of both sides, null where there is no joined row."""
    columns = {name: column for side in sides for name, column in side.items()}
    if there.all():
        return columns
    kept = pa.array(there)
    return {name: pc.if_else(kept, column, pa.scalar(None, column.type)) for name, column in columns.items()}


def _laid_out(  # noqa: PLR0917 - what is known of some rows
    spec: TableJoinSpec,
    task: TaskCommand,
    keys: pa.Array,
    times: NDArray[np.int64],
    columns: Mapping[str, pa.Array],
    which: NDArray[np.bool_],
    last: Any,
) -> pa.RecordBatch:
    """Lay some of the rows out as they leave the step; ``last`` is what they are: new or old, or a deletion or none."""
    some = pa.array(np.flatnonzero(which))
    keys = keys.take(some)
    count = len(keys)
    given: dict[str, pa.Array] = {
        **dict(zip(spec.keys.names, key_columns(keys, spec.keys), strict=True)),
        **{name: column.take(some) for name, column in columns.items()},
        hidden_columns.PARTITION: pa.repeat(pa.scalar(task.task.partition, pa.int32()), count),
        hidden_columns.TIMESTAMP: pa.array(times[which]),
        hidden_columns.KEY: keys,
        spec.output.names[-1]: pa.repeat(pa.scalar(last), count),
    }
    return laid_out((given[name] for name in spec.output.names), spec.output)


def _flags(values: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=bool)
