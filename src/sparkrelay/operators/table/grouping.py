"""Tables with one value a key: rows are grouped by key and merged with the stored values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.operators.table.changed_rows import Groups, changed_rows
from sparkrelay.operators.table.run import TableRunner, note
from sparkrelay.records.arrow_buffers import as_type, whole
from sparkrelay.records.keys import key_bytes
from sparkrelay.runtime.contract import fault_points
from sparkrelay.runtime.worker.task_steps import batch_stamp, task_store
from sparkrelay.state import MergeResult
from sparkrelay.state.lmdb.rows import ascending
from sparkrelay.state.together import TaskShare, merge_together
from sparkrelay.state.view import merging

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sparkrelay.operators.table.run import TaskOutcome
    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.runtime.worker.shares import Share
    from sparkrelay.state import Watermark
    from sparkrelay.state.view import Changes, StoreView


class GroupColumns:
    """Grouping columns in the form that Arrow can group by.

    Arrow cannot group by structs, such as windows: a struct is replaced by its fields. If some structs are null, a
    further column flags them, since null and a struct of nulls are different groups.

    Attributes:
        rows: the rows with these columns.
        names: names of the columns that replace each grouping column.
    """

    def __init__(self, schema: pa.Schema, rows: pa.Table) -> None:
        """Take rows, and the schema of their grouping columns."""
        self._schema = schema
        self.names: list[list[str]] = []
        for key in schema.names:
            column = rows.column(key)
            if not pa.types.is_struct(column.type):
                self.names.append([key])
                rows = rows.set_column(rows.schema.get_field_index(key), rows.schema.field(key), _normal(column))
                continue
            children = []
            for index in range(column.type.num_fields):
                children.append(f"{hidden_columns.PREFIX}{key}_{index}")
                rows = rows.append_column(children[-1], _normal(pc.struct_field(column, [index])))
            if column.null_count:
                children.append(f"{hidden_columns.PREFIX}{key}_null")
                rows = rows.append_column(children[-1], pc.is_null(column))
            self.names.append(children)
        self.rows = rows

    @property
    def flat(self) -> list[str]:
        """Names of all columns to group by."""
        return [name for children in self.names for name in children]

    def of(self, groups: pa.Table) -> list[pa.Array]:
        """Return the original grouping columns of groups."""
        return [_key_column(groups, field.type, some) for field, some in zip(self._schema, self.names, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedRunner(TableRunner):
    """Runs a step that keeps a table with one value a key."""

    def begin(self, share: Share, rows: pa.Table, watermarks: Mapping[int, Watermark]) -> Grouping:
        """Return the groups of the tasks' rows."""
        return Grouping(self, share, rows, watermarks)

    def versions(self, share: Share, rows: pa.Table) -> Mapping[int, pa.RecordBatch] | None:
        """Return partition -> each row as a version of its key, if a leg that looks up the store has input."""
        del share, rows
        return None


class Grouping:
    """Groups of some tasks' rows, to be merged into their stores."""

    def __init__(
        self, runner: GroupedRunner, share: Share, rows: pa.Table, watermarks: Mapping[int, Watermark]
    ) -> None:
        """Group the rows of the tasks.

        Args:
            runner: the step.
            share: the tasks.
            rows: their rows.
            watermarks: partition -> the store's watermark after the batch.
        """
        self.runner, self.watermarks = runner, watermarks
        columns = GroupColumns(runner.layout.keys, rows)
        several = [hidden_columns.PARTITION] if len(share.tasks) > 1 else []
        #: The grouping columns; the task's partition first if there are several tasks.
        self.by = [*several, *columns.flat]
        self.partition = None if several else share.tasks[0].task.partition
        groups, keys, encoded = encoded_groups(runner, columns, self.by)
        stored = runner.layout.stored(keys, encoded)
        order, as_it_is = None, stored is encoded
        if several:
            by_task = pa.table([whole(groups.column(hidden_columns.PARTITION)), stored], ["partition", "key"])
            order = pc.sort_indices(by_task, [("partition", "ascending"), ("key", "ascending")])
        elif not ascending(stored):
            order = pc.array_sort_indices(stored)
        if order is not None:
            # (take() from many chunks searches the chunk of each row.)
            groups = groups.combine_chunks().take(order)
            keys, stored = [key.take(order) for key in keys], stored.take(order)
            encoded = stored if as_it_is else encoded.take(order)
        if several:
            partitions = whole(groups.column(hidden_columns.PARTITION)).to_numpy(zero_copy_only=False)
        else:
            partitions = np.full(len(encoded), self.partition, dtype=np.int32)
        self.groups = Groups(partitions, groups, keys, encoded, stored)
        self._versions = runner.versions(share, columns.rows)
        self.columns = columns

    def together(self, outcomes: Sequence[TaskOutcome]) -> pa.RecordBatch | None:
        """Merge the groups of all tasks into their stores at once, fill in the outcomes, and return the output rows.

        None if the tasks must be merged one by one; the outcomes are unchanged then.
        """
        runner, codec = self.runner, self.runner.layout.codec
        if len(outcomes) == 1 or runner.says_more or self._versions is not None:
            return None
        emitted: list[pa.RecordBatch] = []

        def merge(old: pa.Array) -> pa.Array:
            new, results = codec.merge(self.groups.partial, old)
            emitted.append(changed_rows(runner, codec, self.groups, old, results)[0])
            return new

        fault_points.reach("state-before-apply")
        shares = [
            TaskShare(
                task_store(runner, outcome.command),
                batch_stamp(runner, outcome.command),
                self.groups.keys_of(outcome.command.task.partition),
                self.watermarks.get(outcome.command.task.partition),
            )
            for outcome in outcomes
        ]
        found = merge_together(runner.leg, runner.store, shares, merge)
        if found is None:
            return None
        for outcome, applied in zip(outcomes, found, strict=True):
            if applied is not None:
                note(runner, outcome, applied)
        fault_points.reach("state-after-apply")
        return emitted[0]

    def operator(self, task: TaskCommand) -> Callable[[StoreView], Changes]:
        """Return a function that merges one task's groups into its store."""
        own = self.of(task.task.partition)
        runner, codec = self.runner, self.runner.layout.codec

        def merged(old: pa.Array) -> MergeResult:
            new, results = codec.merge(own.partial, old)
            return MergeResult(new, *changed_rows(runner, codec, own, old, results))

        return merging(runner.store, own.stored, merged, self.watermarks.get(task.task.partition))

    def of(self, partition: int) -> Groups:
        """Return the groups of one task."""
        return self.groups.of(partition, None if self._versions is None else self._versions[partition])


def encoded_groups(
    runner: TableRunner, columns: GroupColumns, by: Sequence[str]
) -> tuple[pa.Table, list[pa.Array], pa.Array]:
    """Return the groups' partial results, key columns and message keys."""
    groups = runner.layout.codec.partial(columns.rows, by)
    keys = columns.of(groups)
    encoded = key_bytes(keys)
    if not encoded.null_count:
        return groups, keys, encoded
    # As in Kafka Streams, records without a key are dropped.
    kept = pc.is_valid(encoded)
    return groups.filter(kept), [key.filter(kept) for key in keys], encoded.filter(kept)


def _normal(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return keys with one zero and one NaN, like Spark (NormalizeFloatingNumbers). Arrow compares bits."""
    if not pa.types.is_floating(column.type):
        return column
    plain = pc.add(column, pa.scalar(0.0, column.type))  # turns -0.0 into 0.0
    return pc.if_else(pc.is_nan(plain), pa.scalar(float("nan"), column.type), plain)


def _key_column(groups: pa.Table, kind: pa.DataType, children: Sequence[str]) -> pa.Array:
    """Return a key column of type ``kind``. Spark sends times in the session's zone; those of ``kind`` are in UTC."""
    columns: list[Any] = [whole(groups.column(name)) for name in children]
    if not pa.types.is_struct(kind):
        return as_type(columns[0], kind)
    nulls = columns.pop() if len(columns) > kind.num_fields else None
    columns = [as_type(column, field.type) for column, field in zip(columns, kind, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=nulls)
