"""What comes in of another table's changes, on its way into a table of newest rows: part of joins by a foreign key.

Behind one of the two repartition topics of such a join (``topology.foreign_joins``) are the left table's rows by
foreign key: a row that is no more is deleted there. Behind the other are the answers to them. An answer counts if it is
of the left table's row as that is by now, in this task: one that is of an older row, or came from where the row no
longer points, ends here, whatever the order in which tasks answer. There is another one to come for the newer row.
Kafka Streams compares digests of both rows; here the rows themselves are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.operators.table.changes import NEW, OLD
from sparkrelay.operators.table_join.run import joined_rows
from sparkrelay.records.arrow_buffers import as_type
from sparkrelay.records.keys import key_bytes
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.worker.context import whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.runtime.contract.specs import AnswersSpec, StateSpec
    from sparkrelay.runtime.worker.shares import Share

__all__ = ["NO_ROW", "as_newest_rows"]

#: Of an answer: the left table's row has no joined one.
NO_ROW: Final = 0


def as_newest_rows(spec: StateSpec, share: Share, rows: pa.Table) -> pa.Table:
    """Return changes of a table as the newest rows that are to be kept of them, and deletions.

    Args:
        spec: the stateful step.
        share: whose rows they are.
        rows: of one key, those that are no more come before the one that is.

    Raises:
        StoreOutOfStepException: the left table's store is not where the batch expects it.
    """
    if spec.answers is not None and rows.num_rows:
        kept = np.zeros(rows.num_rows, dtype=bool)
        partitions = whole(rows.column(hidden_columns.PARTITION)).to_numpy(zero_copy_only=False)
        for task in share.tasks:
            own = np.flatnonzero(partitions == task.task.partition)
            if len(own):
                kept[own] = _count(spec, spec.answers, task, rows.take(pa.array(own)))
        rows = rows.filter(pa.array(kept))
    deletes = pc.not_equal(rows.column(hidden_columns.CHANGE), NEW)
    return rows.set_column(rows.schema.get_field_index(hidden_columns.TOMBSTONE), hidden_columns.TOMBSTONE, deletes)


def _count(spec: StateSpec, answers: AnswersSpec, task: TaskCommand, rows: pa.Table) -> NDArray[np.bool_]:
    """Return which answers count, all of one task's."""
    columns = [as_type(whole(rows.column(name)), spec.input.field(name).type) for name in spec.keys]
    keys = pc.dictionary_encode(key_bytes(columns).cast(pa.binary()))
    left = joined_rows(spec, answers.tables, answers.joined, task, keys.dictionary)
    which = keys.indices.to_numpy(zero_copy_only=False)
    same = pc.equal(
        _bytes(as_type(whole(rows.column(field.name)), field.type) for field in answers.columns),
        _bytes(as_type(left.are[field.name], field.type) for field in answers.columns).take(keys.indices),
    ).to_numpy(zero_copy_only=False)
    is_ = left.is_[which]
    gone = pc.equal(whole(rows.column(hidden_columns.CHANGE)), OLD).to_numpy(zero_copy_only=False)
    counts: NDArray[np.bool_] = np.where(gone, ~is_, is_ & same)
    return counts


def _bytes(columns: Iterable[pa.Array]) -> pa.Array:
    """Return rows as bytes: by those a NaN is what it is, and null is null."""
    arrays = list(columns)
    return key_bytes([pa.nulls(len(arrays[0]), pa.bool_()), *arrays], normal=False)
