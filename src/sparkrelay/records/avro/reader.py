"""Avro values to typed columns: :mod:`read_loop` follows the program of :mod:`program`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparkrelay.errors import SerializationException
from sparkrelay.records.arrow_buffers import NO_BYTES, BinaryColumn, flatten
from sparkrelay.records.avro import read_loop as loop
from sparkrelay.records.avro.arrow_types import arrow_schema_of
from sparkrelay.records.avro.program import make_program
from sparkrelay.records.avro.schema import parse_schema
from sparkrelay.records.bad_record import BadRecord
from sparkrelay.records.cells import too_many
from sparkrelay.records.nested_columns import Buffers, batch_of, buffers_of

if TYPE_CHECKING:
    from collections.abc import Collection

Numbers = np.ndarray[Any, np.dtype[np.int64]]

_REASONS: Final = {
    loop.ENDS: "the value ends in it",
    loop.NO_NUMBER: "it is not a whole number, or the value ends in it",
    loop.TOO_LARGE: "the number is larger than its type",
    loop.NO_TEXT: "the text is not UTF-8",
    loop.NO_BOOLEAN: "a boolean is neither 0 nor 1",
    loop.NO_BRANCH: "the union has no such branch",
    loop.NO_SYMBOL: "the enum has no such symbol, or the reader's schema lacks it and has no default",
    loop.TOO_LONG: "it is longer than the rest of the value",
    loop.TOO_MANY: "it has more items than the rest of the value can hold",
    loop.UNWANTED_BRANCH: "it is of a branch that the reader's schema does not take",
}


class AvroReader:
    """Reads records of one writer's schema to columns of a reader's."""

    def __init__(self, reader: str, writer: str | None, place: str, wanted: Collection[str] | None = None) -> None:
        """Match two schemas.

        Args:
            reader: JSON text of the schema whose fields are the columns.
            writer: that of the values; None: the same.
            place: ``key`` or ``value``, the column of a schema that is not a record.
            wanted: the columns to read; None: all.

        Raises:
            SerializationException: a schema is wrong, or they do not match.
        """
        own = parse_schema(reader)
        schema = arrow_schema_of(own, place)
        kept = [one for one in schema if wanted is None or one.name in wanted]
        self.schema = pa.schema(kept)
        written = own if writer is None else parse_schema(writer)
        self._program = make_program(written, own, place, set(self.schema.names))
        self._code = self._program.code

    def read(self, values: pa.Array, prefix: int = 0) -> tuple[pa.RecordBatch, list[BadRecord]]:
        """Read one record a row.

        Args:
            values: bytes; null (a tombstone) gives a row of nulls and is not bad.
            prefix: bytes of each value before the record.

        Returns:
            A batch of ``schema`` with one row a value, and the bad records in order, whose rows are all null.
        """
        values = flatten(values)
        try:
            column = BinaryColumn.of(values)
        except TypeError as error:
            raise SerializationException(f"Avro is read from bytes: {error}") from error
        tree, rows = self._program.tree, len(values)
        errors, sizes = np.zeros((rows, 2), np.int64), np.zeros(1, np.int64)
        if tree.levels > 1:
            sizes = self._run(column, prefix, errors, [Buffers(NO_BYTES)] * len(tree.columns))
        sizes[0] = rows
        buffers = [buffers_of(node, int(sizes[node.level])) for node in tree.columns]
        self._run(column, prefix, errors, buffers, write=True)
        batch = batch_of(self._program.roots, self.schema, buffers, sizes)
        bad = [
            BadRecord(row, self._reason(values[row].as_py(), *errors[row].tolist(), prefix=prefix))
            for row in np.flatnonzero(errors[:, 0]).tolist()
        ]
        return batch, bad

    def _run(
        self, column: BinaryColumn, prefix: int, errors: Numbers, buffers: list[Buffers], *, write: bool = False
    ) -> Numbers:
        """Return the number of items of each level; fills ``errors`` of the rows."""
        tree = self._program.tree
        table = np.array(
            [[node.level, *own.addresses] for node, own in zip(tree.columns, buffers, strict=True)], np.int64
        ).reshape(-1, loop.COLUMN)
        sizes, marks = np.zeros((2, tree.levels), np.int64)
        stack = np.zeros((self._program.depth, loop.FRAME), np.int64)
        loop.read_rows(
            column.address, column.offsets, column.valid, prefix, self._code, table, tree.widths, sizes, marks, stack,
            errors, write,
        )  # fmt: skip
        return sizes

    def _reason(self, value: bytes, code: int, at: int, *, prefix: int) -> str:
        if code == loop.TOO_WIDE:
            return str(too_many(at, len(value) - prefix))
        shown = value[prefix : prefix + 40]
        if code == loop.GOES_ON:
            return f"there are bytes after its last field: {shown!r}; was it written by another Avro schema?"
        path = self._program.path(at)
        where = f"field {path!r}: " if path else ""
        return f"{where}{_REASONS[code]}: {shown!r}; was it written by another Avro schema?"
