"""Tables with a history: versions of the rows of each key, the newest of which is the table's row.

A version is valid from its timestamp to the next one's. An out-of-order row is inserted among them: lookups as of its
time find it, and the table does not change (KIP-914). Rows older than the history are dropped (KIP-889). As with
windows (``operators.watermarks``), the stream time before the micro-batch decides: rows of several partitions follow
one another in a large micro-batch, and the second partition's rows would be lost otherwise. With one row a micro-batch
this equals Kafka Streams.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.operators.lateness import warn_of_late
from sparkrelay.operators.table.changed_rows import Groups, changed_rows
from sparkrelay.operators.table.changes import NEWEST
from sparkrelay.operators.table.run import TableRunner, Taskwise
from sparkrelay.records.arrow_buffers import as_type, whole
from sparkrelay.records.keys import key_bytes
from sparkrelay.runtime.worker.context import clock_ms
from sparkrelay.runtime.worker.task_steps import look
from sparkrelay.state import versions
from sparkrelay.state.key_parts import key_parts
from sparkrelay.state.lmdb.rows import latest
from sparkrelay.state.view import Changes
from sparkrelay.state.window_keys import LATEST, NO_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from sparkrelay.operators.history.layout import HistoryLayout
    from sparkrelay.operators.table.run import Merged
    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.runtime.contract.specs import StepSpec
    from sparkrelay.runtime.worker.shares import Share
    from sparkrelay.state import LookedUp, Watermark
    from sparkrelay.state.view import StoreView

    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

#: Number of due notes that a micro-batch processes, besides two for each of its keys.
_MOST_NOTES: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRunner(TableRunner):
    """Runs a step that keeps older versions of rows.

    Attributes:
        ahead_ms: timestamps further ahead of the machine's clock than this do not advance the stream time.
    """

    layout: HistoryLayout
    ahead_ms: int = 0

    @property
    def history_ms(self) -> int:
        """How long the table keeps older versions of rows, in ms."""
        return self.layout.history_ms

    def begin(self, share: Share, rows: pa.Table, watermarks: Mapping[int, Watermark]) -> Taskwise:
        """Return the work on the tasks' rows."""
        del share, watermarks

        def begin(task: TaskCommand, own: pa.Table) -> Callable[[StoreView], Changes]:
            return TaskVersions(self, task, own, clock_ms(task) + self.ahead_ms, self.looked_from(task)).operate

        return Taskwise(rows, begin)

    def merge(self, share: Share) -> Merged:
        """Apply the rows of some tasks to their stores, and log late ones."""
        merged = TableRunner.merge(self, share)
        late = sum(outcome.applied.entry.rows_late for outcome in merged.outcomes if outcome.applied is not None)
        warn_of_late(self.store, late, "after the table's history", "a longer history= of the table")
        return merged

    def found(self, spec: StepSpec, task: TaskCommand, keys: pa.Array) -> LookedUp:
        """Look up the newest rows of keys, with those before the micro-batch."""
        parts = key_parts(keys)
        found = look(spec, task, self.store, self.contents, lambda view: _rows(versions.newest(view, parts)[1]))
        return replace(found, before=found.beside.get(NEWEST))

    def looked_from(self, task: TaskCommand) -> int:
        """Return the earliest time, in ms since 1970, for which lookups are still expected.

        After an outage, the streams that look up the table may lag behind it, for example through a repartition topic.
        Kafka Streams takes the records of both in timestamp order.
        """
        limits = task.event_time_limits
        held = [
            limits.get(topic, NO_TIME)
            for topic in self.looked_up_by
            if topic in task.unread or (topic in task.behind and topic not in limits)
        ]
        return min(held, default=LATEST)


@dataclass(frozen=True, slots=True)
class _Brought:
    """Rows of a task that are not late.

    Attributes:
        rows: their columns.
        keys: distinct encoded keys, sorted.
        parts: the same as parts of the store's keys.
        which: index of each row's key.
        times: their timestamps.
    """

    rows: pa.Table
    keys: pa.Array
    parts: pa.Array
    which: Numbers
    times: Numbers


class TaskVersions:
    """The work of one task on a table with a history."""

    def __init__(
        self, runner: HistoryRunner, task: TaskCommand, rows: pa.Table, latest_ms: int, looked_from_ms: int
    ) -> None:
        """Take the rows.

        Args:
            runner: the step.
            task: the task's command.
            rows: its rows, in order.
            latest_ms: later timestamps do not advance the stream time, ms since 1970: one producer with a wrong clock
                would make all following rows late.
            looked_from_ms: upper bound of the stream time: the earliest expected lookup.
        """
        self._runner = runner
        self._history_ms = runner.layout.history_ms
        self._partition, self._batch = task.task.partition, task.batch
        self._latest_ms, self._looked_from_ms = latest_ms, looked_from_ms
        self._codec = runner.layout.codec
        keys = key_bytes([as_type(whole(rows.column(field.name)), field.type) for field in runner.layout.keys])
        # As in Kafka Streams, records without a key are dropped.
        self._keys = keys.cast(pa.binary()).drop_null()
        self._rows = rows.filter(keys.is_valid()).combine_chunks()
        self._times = whole(self._rows.column(hidden_columns.TIMESTAMP)).to_numpy(zero_copy_only=False)

    def operate(self, view: StoreView) -> Changes:
        """Return the changes of the store, and of the newest rows."""
        now = versions.clock(view)
        late = self._times < now - self._history_ms
        brought = self._brought(~late)
        newest, values = versions.newest(view, brought.parts)
        keys, put = latest(
            versions.version_keys(brought.parts.take(pa.array(brought.which)), brought.times),
            pc.fill_null(self._codec.values(brought.rows), versions.DELETED),
        )
        noted = self._notes(brought, newest, keys, put)
        unknown = noted.filter(view.get(noted).is_null())
        changed, new = [keys, unknown], [put, pa.repeat(pa.scalar(b"", pa.binary()), len(unknown))]
        if now != NO_TIME:
            most = _MOST_NOTES + 2 * len(brought.keys)
            due, old = versions.deletable(view, now, self._history_ms, most)
            for some, kept in ((due, noted), (old, keys)):
                gone = some.filter(pc.invert(pc.is_in(some, value_set=kept)))
                changed.append(gone)
                new.append(pa.nulls(len(gone), pa.binary()))
        newest_ms = int(self._times.max(initial=NO_TIME, where=self._times <= self._latest_ms))
        if (after := min(newest_ms, self._looked_from_ms)) > now:
            changed.append(pa.array([versions.CLOCK], pa.binary()))
            new.append(pa.array([versions.clock_value(after, now, self._batch)], pa.binary()))
        changes = Changes.of(view, pa.concat_arrays(changed), pa.concat_arrays(new), None)
        emitted, beside = self._emitted(brought, newest, _rows(values))
        return replace(changes, emitted=emitted, beside=beside, rows_late=int(late.sum()))

    def _brought(self, kept: Flags) -> _Brought:
        some = pa.array(kept)
        encoded = self._keys.filter(some)
        keys = pc.unique(encoded).sort()
        which = pc.index_in(encoded, value_set=keys).to_numpy(zero_copy_only=False).astype(np.int64)
        return _Brought(self._rows.filter(some), keys, key_parts(keys), which, self._times[kept])

    def _notes(self, brought: _Brought, newest: Numbers, keys: pa.Array, put: pa.Array) -> pa.Array:
        """Return the notes of when versions of keys expire, sorted.

        Args:
            brought: the rows.
            newest: timestamp of each key's newest row before the batch.
            keys: keys that are written.
            put: values that are written.
        """
        after = newest.copy()
        np.maximum.at(after, brought.which, brought.times)
        at = pc.index_in(versions.version_keys(brought.parts, after), value_set=keys)
        deleted = pc.fill_null(pc.equal(put.take(at), versions.DELETED), False).to_numpy(zero_copy_only=False)
        oldest = after.copy()
        np.minimum.at(oldest, brought.which, brought.times)
        going = (newest != versions.NEVER) | (oldest != after) | deleted
        notes = versions.due_keys(brought.parts.filter(pa.array(going)), after[going], self._history_ms)
        # Versions before an out-of-order row expire by that row, not by the newest one, which may be years ahead.
        last = np.full(len(newest), versions.NEVER)
        np.maximum.at(last, brought.which, brought.times)
        before = last < after
        more = versions.due_keys(brought.parts.filter(pa.array(before)), last[before], self._history_ms)
        return pc.unique(pa.concat_arrays([notes, more])).sort()

    def _emitted(self, brought: _Brought, newest: Numbers, old: pa.Array) -> tuple[pa.RecordBatch, dict[str, Any]]:
        """Return the output rows, and the batches that other legs find in the journal."""
        runner = self._runner
        order = np.lexsort((brought.times, brought.which))
        last = order[np.r_[np.diff(brought.which[order]) != 0, True][: len(order)]]
        newer = brought.times[last] >= newest
        winners, old = brought.rows.take(pa.array(last[newer])), old.filter(pa.array(newer))
        encoded = brought.keys.filter(pa.array(newer))
        _, results = self._codec.merge(winners, old)
        columns = [as_type(whole(winners.column(field.name)), field.type) for field in runner.layout.keys]
        groups = Groups.of_one(self._partition, winners, columns, encoded, encoded)
        emitted, beside = changed_rows(runner, self._codec, groups, old, results)
        found = dict(beside)
        if runner.joined:
            found[NEWEST] = pa.record_batch([encoded, old], ["key", "old"]).filter(results[-1])
        return emitted, found


def _rows(values: pa.Array) -> pa.Array:
    """Return stored rows, null for deleted ones."""
    return pc.if_else(pc.equal(values, versions.DELETED), pa.scalar(None, pa.binary()), values)
