"""Filtering of outdated answers in a join by a foreign key.

One repartition topic of such a join (``topology.foreign_joins``) has the left table's rows by foreign key, the other
one the answers to them. An answer is valid if it belongs to the current row of the left table in this task. Answers to
an older row, or from a key that the row no longer references, are dropped, whatever the order of the answers: the newer
row gets its own. Kafka Streams compares digests of the rows; here the rows themselves are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.operators.table.changes import OLD
from sparkrelay.operators.table.joined_rows import joined_rows
from sparkrelay.records.arrow_buffers import as_type, whole
from sparkrelay.records.keys import key_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from sparkrelay.operators.table.joined_rows import JoinedTables
    from sparkrelay.operators.table.run import TableRunner
    from sparkrelay.runtime.contract.commands import TaskCommand

#: Kind of an answer: the left table's row has no match.
NO_ROW: Final = 0


@dataclass(frozen=True, slots=True)
class Answers:
    """Selects the answers to current rows of the left table.

    Attributes:
        tables: the tables of which the left table is made.
        joined: how they are joined; tables by their index in ``tables``.
        columns: Arrow schema of its columns without the key.
    """

    tables: tuple[TableRunner, ...]
    joined: JoinedTables | int
    columns: pa.Schema

    def counting(self, runner: TableRunner, task: TaskCommand, rows: pa.Table) -> NDArray[np.bool_]:
        """Return which of a task's answers are valid; ``runner`` is the step that receives them.

        Raises:
            StoreOutOfStepException: the left table's store is not at the batch's position.
        """
        columns = [as_type(whole(rows.column(field.name)), field.type) for field in runner.layout.keys]
        keys = pc.dictionary_encode(key_bytes(columns).cast(pa.binary()))
        left = joined_rows(runner, self.tables, self.joined, task, keys.dictionary)
        which = keys.indices.to_numpy(zero_copy_only=False)
        same = pc.equal(
            _bytes(as_type(whole(rows.column(field.name)), field.type) for field in self.columns),
            _bytes(as_type(one, field.type) for one, field in zip(left.are, self.columns, strict=True)).take(
                keys.indices
            ),
        ).to_numpy(zero_copy_only=False)
        is_ = left.is_[which]
        gone = pc.equal(whole(rows.column(hidden_columns.CHANGE)), OLD).to_numpy(zero_copy_only=False)
        counts: NDArray[np.bool_] = np.where(gone, ~is_, is_ & same)
        return counts


def _bytes(columns: Iterable[pa.Array]) -> pa.Array:
    """Encode rows so that NaN equals NaN and null equals null."""
    arrays = list(columns)
    return key_bytes([pa.nulls(len(arrays[0]), pa.bool_()), *arrays], normal=False)
