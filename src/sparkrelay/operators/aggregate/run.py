"""Aggregates by key in workers: partial results in Arrow, merged with the stored states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.operators.aggregate.collected_values import CollectedRows, TaskCollection, collected_rows
from sparkrelay.operators.aggregate.distinct_values import DistinctValues, value_rows
from sparkrelay.operators.table.changed_rows import changed_rows
from sparkrelay.operators.table.grouping import GroupedRunner, Grouping
from sparkrelay.records.keys import key_bytes
from sparkrelay.state import MergeResult
from sparkrelay.state.aggregate import AggregateCodec
from sparkrelay.state.lmdb.rows import SortedKeys
from sparkrelay.state.view import Changes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.operators.aggregate.layout import AggregateLayout
    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.runtime.worker.shares import Share
    from sparkrelay.state import Watermark
    from sparkrelay.state.view import StoreView

_EMPTY = pa.scalar(b"", pa.binary())


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateRunner(GroupedRunner):
    """Runs a step of aggregates."""

    layout: AggregateLayout

    @property
    def deletes(self) -> bool:
        """Whether groups can be deleted: aggregates of a table."""
        return self.layout.of_changes

    @property
    def says_more(self) -> bool:
        """Whether it reads, writes or emits more than the states of groups."""
        # A dataclass with slots is another class than the one that super() without arguments would mean.
        return self.layout.has_values or super(AggregateRunner, self).says_more

    def begin(self, share: Share, rows: pa.Table, watermarks: Mapping[int, Watermark]) -> Grouping:
        """Return the groups of the tasks' rows."""
        make = _GroupingWithValues if self.layout.has_values else Grouping
        return make(self, share, rows, watermarks)


class _GroupingWithValues(Grouping):
    """Groups with distinct or collected values."""

    runner: AggregateRunner

    def __init__(
        self, runner: AggregateRunner, share: Share, rows: pa.Table, watermarks: Mapping[int, Watermark]
    ) -> None:
        """Group the rows of the tasks, and their values."""
        super().__init__(runner, share, rows, watermarks)
        layout, columns = runner.layout, self.columns

        def encode(pairs: pa.Table) -> tuple[pa.Array, pa.Array | None]:
            keys = columns.of(pairs)
            return key_bytes(keys), layout.ends(keys)

        self._values: list[DistinctValues] = value_rows(
            layout.aggregates, columns.rows, self.by, encode, self.partition
        )
        self._collected: list[CollectedRows] = collected_rows(
            layout.aggregates, columns.rows, self.by, lambda pairs: encode(pairs)[0], self.partition
        )

    def operator(self, task: TaskCommand) -> Callable[[StoreView], Changes]:
        """Return a function that adds new values to a store and merges the groups."""
        runner, layout, codec = self.runner, self.runner.layout, self.runner.layout.codec
        partition = task.task.partition
        groups = self.of(partition)
        values = [some.of(partition) for some in self._values]
        collected = [some.of(partition) for some in self._collected]
        ends = None if layout.window is None else pc.binary_slice(groups.stored, 0, 8)
        final = runner.watermark is not None and runner.watermark.final
        collection = TaskCollection(codec, groups.encoded, ends, layout.most, final=final)
        ordered = [SortedKeys.of(some.keys) for some in values]
        by_group = SortedKeys.of(groups.stored)

        def operate(view: StoreView) -> Changes:
            full, changes = groups.partial, []
            for some, sorted_keys in zip(values, ordered, strict=True):
                new = pc.is_null(sorted_keys.as_given(view.get(sorted_keys.keys)))
                places = pc.index_in(some.groups.filter(new), value_set=groups.stored)
                assert isinstance(codec, AggregateCodec), "aggregates of a table collect distinct values"
                full = codec.with_values(full, some.index, places, some.arguments.filter(new))
                keys = some.keys.filter(new)
                changes.append((keys, pa.nulls(len(keys), pa.binary()), pa.repeat(_EMPTY, len(keys))))
            old = by_group.as_given(view.get(by_group.keys))
            changes += collection.change(view, old, collected)
            merged = completed(full, old)
            keys, before, after = (
                pa.concat_arrays(some) for some in zip((groups.stored, old, merged.new), *changes, strict=True)
            )
            watermark = self.watermarks.get(partition)
            return Changes(keys, before, after, watermark, merged.emitted, merged.beside, SortedKeys.of(keys))

        def completed(partial: pa.Table, old: pa.Array) -> MergeResult:
            new, results = codec.merge(partial, old)
            # Deleted groups are emitted with their last results.
            after = collection.results_after(results, results[-2] if runner.deletes else None)
            return MergeResult(new, *changed_rows(runner, codec, groups, old, after, collection.results_before))

        return operate
