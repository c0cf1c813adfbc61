"""Which answers of a join by a foreign key count.

Behind one of the two repartition topics of such a join (``topology.foreign_joins``) are the left table's rows by
foreign key: a row that is no more is deleted there. Behind the other are the answers to them. An answer counts if it is
of the left table's row as that is by now, in this task: one that is of an older row, or came from where the row no
longer points, ends here, whatever the order in which tasks answer. There is another one to come for the newer row.
Kafka Streams compares digests of both rows; here the rows themselves are there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.operators.table.changes import OLD
from sparkrelay.operators.table.joined_rows import joined_rows
from sparkrelay.records.arrow_buffers import as_type
from sparkrelay.records.keys import key_bytes
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.worker.context import whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from sparkrelay.operators.table.joined_rows import JoinedTables
    from sparkrelay.operators.table.run import TableRunner
    from sparkrelay.runtime.contract.commands import TaskCommand

__all__ = ["NO_ROW", "Answers"]

#: Of an answer: the left table's row has no joined one.
NO_ROW: Final = 0


@dataclass(frozen=True, slots=True)
class Answers:
    """Which answers of a join by a foreign key count: those of the left table's rows as they are.

    Attributes:
        tables: those that the left table is of.
        joined: how they are joined; tables by their place among ``tables``.
        columns: Arrow schema of its columns without the key.
    """

    tables: tuple[TableRunner, ...]
    joined: JoinedTables | int
    columns: pa.Schema

    def counting(self, runner: TableRunner, task: TaskCommand, rows: pa.Table) -> NDArray[np.bool_]:
        """Return which answers count, all of one task's.

        Args:
            runner: the step that takes them in.
            task: whose they are.
            rows: the answers.

        Raises:
            StoreOutOfStepException: the left table's store is not where the batch expects it.
        """
        columns = [as_type(whole(rows.column(field.name)), field.type) for field in runner.layout.keys]
        keys = pc.dictionary_encode(key_bytes(columns).cast(pa.binary()))
        left = joined_rows(runner, self.tables, self.joined, task, keys.dictionary)
        which = keys.indices.to_numpy(zero_copy_only=False)
        same = pc.equal(
            _bytes(as_type(whole(rows.column(field.name)), field.type) for field in self.columns),
            _bytes(as_type(left.are[field.name], field.type) for field in self.columns).take(keys.indices),
        ).to_numpy(zero_copy_only=False)
        is_ = left.is_[which]
        gone = pc.equal(whole(rows.column(hidden_columns.CHANGE)), OLD).to_numpy(zero_copy_only=False)
        counts: NDArray[np.bool_] = np.where(gone, ~is_, is_ & same)
        return counts


def _bytes(columns: Iterable[pa.Array]) -> pa.Array:
    """Return rows as bytes, in which every NaN is the same, and so is every null."""
    arrays = list(columns)
    return key_bytes([pa.nulls(len(arrays[0]), pa.bool_()), *arrays], normal=False)
