"""Layout of aggregates in their store: a state for each group, and distinct or collected values beside it.

Each such value has a key of its own (``distinct_values``, ``collected_values``). A byte before the message key then
distinguishes the kinds of keys.
"""

from __future__ import annotations

import base64
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.client.config import longest_request
from sparkrelay.operators.aggregate.collected_values import collected_results, collected_spans
from sparkrelay.operators.aggregate.distinct_values import GROUP, marked
from sparkrelay.operators.aggregate.table_aggregates import TableAggregates
from sparkrelay.operators.table.layout import TableLayout
from sparkrelay.records.type_names import type_json
from sparkrelay.state.aggregate import AggregateCodec, AggregateSpec
from sparkrelay.state.byte_arrays import drop_first
from sparkrelay.state.window_keys import END_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.state.reader import StoreSnapshot

#: Greater than every group.
_BEHIND: Final = GROUP + b"\xff" * 600


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateLayout(TableLayout):
    """Layout of aggregates in their store.

    Attributes:
        aggregates: in the order of the argument columns; the last is the timestamp.
        of_changes: True for aggregates of a table, whose old rows are subtracted.
        of_all: True for totals of all rows of a table. As in SQL there is one if no row is left, too.
        most: largest result of an aggregate that shows all values, in bytes.
    """

    aggregates: tuple[AggregateSpec, ...]
    of_changes: bool = False
    of_all: bool = False
    most: int = longest_request({})

    @property
    def codec(self) -> AggregateCodec | TableAggregates:
        """Codec of the store's values."""
        return TableAggregates(self.aggregates, stay=self.of_all) if self.of_changes else _codec(self.aggregates)

    @property
    def collects(self) -> bool:
        """Whether the store has collected values."""
        return any(aggregate.collects for aggregate in self.aggregates)

    @property
    def has_values(self) -> bool:
        """Whether the store has distinct or collected values."""
        return any(aggregate.distinct or aggregate.collects for aggregate in self.aggregates)

    def said(self) -> dict[str, Any]:
        """Return the description besides the columns."""
        aggregates = [_aggregate_json(aggregate) for aggregate in self.aggregates]
        more = {"ofAll": True} if self.of_all else {}
        return {"table": False, "aggregates": aggregates, "changes": self.of_changes, **more}

    def stored(self, keys: Sequence[pa.Array], encoded: pa.Array) -> pa.Array:
        """Return the store's keys of groups."""
        return marked(self.ends(keys), encoded) if self.has_values else TableLayout.stored(self, keys, encoded)

    def span_of(self, span: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
        """Return the range of the store's keys for a range of message keys, in a store without windows."""
        return (GROUP + span[0], GROUP + span[1]) if self.has_values else span

    def span_behind(self, after: bytes) -> tuple[bytes, bytes | None]:
        """Return the range of the store's keys with the groups after ``after``."""
        return (max(after, GROUP), _BEHIND) if self.has_values and self.window is None else (after, None)

    def groups(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        """Return the message keys and states of the groups in ``key, value`` of the store."""
        groups = TableLayout.groups(self, stored)
        if not self.has_values:
            return groups
        keys, values = groups.columns
        of_group = pc.equal(pc.binary_slice(keys, 0, 1), pa.scalar(GROUP, pa.binary()))
        return pa.record_batch([drop_first(keys.filter(of_group)), values.filter(of_group)], ["key", "value"])

    def results(self, groups: pa.RecordBatch, stored: pa.RecordBatch) -> list[pa.Array]:
        """Return the results of groups, then their timestamps; see :meth:`TableLayout.results`."""
        results = self.codec.results(groups.column("value"))
        if not self.collects:
            return results
        windowed = self.window is not None
        return collected_results(self.codec, groups, stored, results, windowed=windowed, most=self.most)

    def row_of(self, snapshot: StoreSnapshot, key: pa.RecordBatch, encoded: pa.Array) -> pa.RecordBatch:
        """Return the row of a group, if it exists."""
        stored = self.stored(key.columns, encoded)
        if self.window is not None and stored[0].as_py() < self.span(snapshot.expired)[0]:
            return self.no_rows()
        values = snapshot.get(stored)
        found = pa.record_batch([stored, values], ["key", "value"]).filter(values.is_valid())
        return self.rows(self.complete(snapshot, found))

    def complete(self, snapshot: StoreSnapshot, found: pa.RecordBatch) -> pa.RecordBatch:
        """Return the groups of a range of the store's keys with their collected values."""
        if not self.collects or not found.num_rows:
            return found
        skipped = 0 if self.window is None else END_BYTES
        kinds = pc.binary_slice(found.column("key"), skipped, skipped + 1)
        found = found.filter(pc.equal(kinds, pa.scalar(GROUP, pa.binary())))
        ends = None if self.window is None else pc.binary_slice(found.column("key"), 0, END_BYTES)
        values = snapshot.ranges(collected_spans(self.groups(found).column("key"), ends))
        return pa.concat_batches([found.cast(values.schema), values])


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsLayout(AggregateLayout):
    """Layout of aggregates by session windows: as other windows, and an index of open sessions."""

    @property
    def sessions(self) -> bool:
        """Whether windows are sessions, which merge when they touch."""
        return True


@functools.lru_cache(maxsize=64)
def _codec(aggregates: tuple[AggregateSpec, ...]) -> AggregateCodec:
    return AggregateCodec(aggregates)


def _aggregate_json(aggregate: AggregateSpec) -> dict[str, Any]:
    arguments = [] if aggregate.column is None else [(aggregate.column, aggregate.input_type)]
    return {
        "function": aggregate.function,
        "arguments": [[name, type_json(kind)] for name, kind in (*arguments, *aggregate.others)],
        "result": [aggregate.result, type_json(aggregate.result_type)],
        "distinct": aggregate.distinct,
        "subtracts": aggregate.subtracts,
        "options": _option_json(aggregate.options),
    }


def _option_json(option: Any) -> Any:
    if isinstance(option, tuple | list):
        return [_option_json(one) for one in option]
    if isinstance(option, bytes | bytearray):
        return {"bytes": base64.b64encode(option).decode()}
    return option
