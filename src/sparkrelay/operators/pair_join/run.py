"""Many-to-many joins of tables in workers: emits changed pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.operators.table.joined_rows import NEVER, JoinRunner, joined_rows, touched_keys
from sparkrelay.records.keys import key_bytes, key_columns
from sparkrelay.records.tuples import write_columns
from sparkrelay.runtime.worker.context import laid_out
from sparkrelay.runtime.worker.task_steps import task_store

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sparkrelay.operators.table.joined_rows import Rows
    from sparkrelay.operators.table.run import TableRunner
    from sparkrelay.runtime.contract.commands import TaskCommand

    Flags = NDArray[np.bool_]
    Places = NDArray[np.int64]

#: The index of a missing row.
NONE: Final = -1
#: The kind of join that returns left rows with a flag for a partner.
EXISTS: Final = "exists"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairJoinRunner(JoinRunner):
    """Joins two tables by columns that need not be a key.

    Attributes:
        tables: the left and the right table, keyed by the equal columns and then their own key.
        how: ``inner``, ``left``, ``right``, ``full`` or ``exists``.
        width: number of equal columns.
        keys: Arrow schema of the key of output rows: equal columns, left key, right key.
        output: key, other left columns, other right columns, a flag for each side that
            may be missing, hidden columns. With ``exists`` there are no right columns.
    """

    tables: tuple[TableRunner, TableRunner]
    how: str
    width: int
    keys: pa.Schema

    def changed(self, task: TaskCommand) -> pa.RecordBatch:
        """Return the changed rows of a task."""
        left, right = _sides(self, task)
        found = [_pairs(left, right)] if self.how != EXISTS else []
        if self.how in {"left", "full"}:
            found.append(_alone(left, right, mirrored=False))
        if self.how in {"right", "full"}:
            found.append(_alone(right, left, mirrored=True))
        if self.how == EXISTS:
            found.append(_existing(left, right))
        rows = _Joined.together(found)
        parts = self.parts(rows.was, rows.is_, rows.changed)
        return pa.concat_batches(
            [self._laid_out(task, left, right, rows.some(which), now, last) for which, now, last in parts]
        )

    def _laid_out(  # noqa: PLR0917 - of one part
        self, task: TaskCommand, left: _Side, right: _Side, rows: _Joined, now: bool, last: Any
    ) -> pa.RecordBatch:
        """Return current (``now``) or previous rows; ``last`` is the value of their last column."""
        count = len(rows.left)
        at, other = _places(rows.left), _places(rows.right)
        by = [pc.coalesce(mine.take(at), theirs.take(other)) for mine, theirs in zip(left.by, right.by, strict=True)]
        keys = [*by, *(column.take(at) for column in left.own)]
        columns = [column.take(at) for column in (left.rows.are if now else left.rows.were)]
        if self.how != EXISTS:
            keys += [column.take(other) for column in right.own]
            columns += [column.take(other) for column in (right.rows.are if now else right.rows.were)]
        flags = {
            "left": (rows.right != NONE,),
            "right": (rows.left != NONE,),
            "full": (rows.left != NONE, rows.right != NONE),
            EXISTS: (rows.exist if now else rows.existed,),
        }.get(self.how, ())
        columns += [pa.array(flag) for flag in flags]
        hidden = {
            hidden_columns.PARTITION: pa.repeat(pa.scalar(task.task.partition, pa.int32()), count),
            hidden_columns.TIMESTAMP: pa.array(rows.times),
            hidden_columns.KEY: key_bytes(keys),
            self.output.names[-1]: pa.repeat(pa.scalar(last), count),
        }
        shown = len(self.keys) + len(columns)
        return laid_out([*keys, *columns, *(hidden[name] for name in self.output.names[shown:])], self.output)


@dataclass(slots=True)
class _Side:
    """The rows of one table in the groups that the micro-batch changed.

    Attributes:
        by: the equal columns.
        own: the columns of the rows' own key.
        rows: the rows before and after the micro-batch.
        groups: the group number of each row; ``NONE`` for a null, which matches nothing.
        touched: whether the micro-batch wrote the row.
        existed: by group number, whether the group had a row before the micro-batch.
        exist: the same after it.
        newest: by group number, the latest timestamp of written rows, or ``NEVER``.
    """

    by: list[pa.Array]
    own: list[pa.Array]
    rows: Rows
    groups: Places
    touched: Flags
    existed: Flags
    exist: Flags
    newest: Places


@dataclass(slots=True)
class _Joined:
    """Joined rows by the indices of both rows; ``existed`` and ``exist`` are flags of existence joins."""

    left: Places
    right: Places
    was: Flags
    is_: Flags
    changed: Flags
    times: Places
    existed: Flags
    exist: Flags

    @classmethod
    def together(cls, found: list[_Joined]) -> _Joined:
        """Concatenate joined rows."""
        return cls(*(np.concatenate([getattr(one, name) for one in found]) for name in cls.__slots__))

    def some(self, which: Flags) -> _Joined:
        """Return a selection."""
        return _Joined(*(getattr(self, name)[which] for name in self.__slots__))


def _sides(spec: PairJoinRunner, task: TaskCommand) -> tuple[_Side, _Side]:
    """Return the rows of both tables that determine the changed output rows."""
    touched = [touched_keys(spec, [table], task) for table in spec.tables]
    begun = [_beginnings(spec, table, keys) for table, keys in zip(spec.tables, touched, strict=True)]
    groups = pc.unique(pa.chunked_array(begun)).drop_null()
    left, right = begun
    # Written rows need all possible partners. Rows without a partner also need the rest of their group.
    left_of = pa.chunked_array([right, *([left] if spec.how in {"right", "full"} else [])])
    right_of = pa.chunked_array([left, *([right] if spec.how in {"left", "full", EXISTS} else [])])
    sides = [
        _side(spec, table, task, written, pc.unique(wanted).drop_null(), groups)
        for table, written, wanted in zip(spec.tables, touched, (left_of, right_of), strict=True)
    ]
    return sides[0], sides[1]


def _side(  # noqa: PLR0917 - what is known of one side
    spec: PairJoinRunner, table: TableRunner, task: TaskCommand, touched: pa.Array, wanted: pa.Array, groups: pa.Array
) -> _Side:
    """Return the written rows of a table and all rows of the wanted groups.

    Args:
        spec: the step.
        table: the table.
        task: of the micro-batch.
        touched: the written keys.
        wanted: the encoded groups to read entirely.
        groups: all encoded groups; the index is the group number.
    """
    kept = _keys_beginning(spec, table, task, wanted)
    keys = pc.unique(pa.chunked_array([touched, kept])).sort()
    rows = joined_rows(spec, [table], 0, task, keys)
    columns = key_columns(keys, table.layout.keys)
    at = pc.index_in(_beginnings(spec, table, keys), value_set=groups)
    numbers = pc.fill_null(at, NONE).to_numpy(zero_copy_only=False).astype(np.int64)
    written = pc.is_in(keys, value_set=touched).to_numpy(zero_copy_only=False)
    existed, exist = np.zeros(len(groups) + 1, bool), np.zeros(len(groups) + 1, bool)
    existed[numbers[rows.was]] = True
    exist[numbers[rows.is_]] = True
    # A null matches nothing.
    existed[NONE] = exist[NONE] = False
    newest = np.full(len(groups) + 1, NEVER)
    np.maximum.at(newest, numbers[written], rows.times[written])
    newest[NONE] = NEVER
    return _Side(columns[: spec.width], columns[spec.width :], rows, numbers, written, existed, exist, newest)


def _beginnings(spec: PairJoinRunner, table: TableRunner, keys: pa.Array) -> pa.Array:
    """Return the encoded equal columns of keys; null if one of them is null, as it matches nothing."""
    columns = key_columns(keys, table.layout.keys)[: spec.width]
    # The additional column forces the encoding of several columns.
    beginnings = key_bytes([pa.nulls(len(keys), pa.bool_()), *columns]).cast(pa.binary())
    for column in columns:
        beginnings = pc.if_else(column.is_valid(), beginnings, pa.scalar(None, pa.binary()))
    return beginnings


def _keys_beginning(spec: PairJoinRunner, table: TableRunner, task: TaskCommand, wanted: pa.Array) -> pa.Array:
    """Return the keys of all rows in groups."""
    layout = table.layout
    schema = pa.schema([pa.field("", pa.bool_()), *(layout.keys.field(index) for index in range(spec.width))])
    columns = key_columns(wanted, schema)[1:]
    beginnings = write_columns(columns, lists=False, normal=True).to_pylist()
    found = task_store(spec, task).look(
        table.store,
        lambda view: view.keys_beginning(beginnings),
        contents=table.contents,
        task_epoch=task.task_epoch,
    )
    return found.values.cast(pa.binary())


def _pairs(left: _Side, right: _Side) -> _Joined:
    """Return the pairs with at least one written row."""
    everything = np.arange(len(right.groups))
    found = [
        _matched(left.groups, np.flatnonzero(left.touched), right.groups, everything),
        _matched(left.groups, np.flatnonzero(~left.touched), right.groups, np.flatnonzero(right.touched)),
    ]
    at, other = (np.concatenate(places) for places in zip(*found, strict=True))
    was, is_ = left.rows.was[at] & right.rows.was[other], left.rows.is_[at] & right.rows.is_[other]
    changed = (was | is_) & (left.rows.changed[at] | right.rows.changed[other])
    times = np.maximum(left.rows.times[at], right.rows.times[other])
    return _Joined(at, other, was, is_, changed, times, was, is_)


def _matched(groups: Places, some: Places, others: Places, of_others: Places) -> tuple[Places, Places]:
    """Return index pairs of rows in the same group: ``some`` of the first rows with ``of_others`` of the second."""
    some = some[groups[some] != NONE]
    of_others = of_others[np.argsort(others[of_others], kind="stable")]
    ordered = others[of_others]
    first = np.searchsorted(ordered, groups[some], "left")
    counts = np.searchsorted(ordered, groups[some], "right") - first
    ends = np.cumsum(counts)
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)
    return np.repeat(some, counts), of_others[np.repeat(first, counts) + within]


def _alone(side: _Side, other: _Side, *, mirrored: bool) -> _Joined:
    """Return the rows of a side for the time in which they have no partner."""
    at, nothing = np.arange(len(side.groups)), np.full(len(side.groups), NONE)
    existed, exist = other.existed[side.groups], other.exist[side.groups]
    was, is_ = side.rows.was & ~existed, side.rows.is_ & ~exist
    changed = (was != is_) | (side.rows.changed & is_)
    times = np.maximum(side.rows.times, other.newest[side.groups])
    left, right = (nothing, at) if mirrored else (at, nothing)
    return _Joined(left, right, was, is_, changed, times, existed, exist)


def _existing(side: _Side, other: _Side) -> _Joined:
    """Return the rows of a side with flags for a partner."""
    at = np.arange(len(side.groups))
    existed, exist = other.existed[side.groups], other.exist[side.groups]
    was, is_ = side.rows.was, side.rows.is_
    changed = (was | is_) & (side.rows.changed | (existed != exist))
    times = np.maximum(side.rows.times, other.newest[side.groups])
    return _Joined(at, np.full(len(at), NONE), was, is_, changed, times, existed, exist)


def _places(places: Places) -> pa.Array:
    return pa.array(places, mask=places == NONE)
