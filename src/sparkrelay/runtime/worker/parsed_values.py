"""What Spark's ``from_json`` and ``from_avro`` would make of bytes, read by our own readers where both agree.

JSON is read by the compiled loop alone (``records.json.flat``): it takes common objects, is never unsure of one, and
declines all others, which Spark then reads itself. So Spark reads Avro that our reader finds bad.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.records.arrow_buffers import BinaryColumn, flatten
from sparkrelay.records.avro import codec
from sparkrelay.records.json.flat import read_flat
from sparkrelay.records.times import parse_dates, parse_timestamps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sparkrelay.records.formats import Avro

#: Jackson refuses longer numbers, also in fields that nobody reads; in longer names and texts it has limits, too.
_LONG: Final = 1000
_LONGEST: Final = 50_000
_DIGITS: Final = rf"[0-9eE.+-]{{{_LONG}}}"
#: Times that Spark casts whatever its settings are.
_DATE: Final = r"^\d{4}-\d\d-\d\d"
_ZONE: Final = r"(Z|[+-](0\d|1[0-7]):[0-5]\d)?"
_PLAIN: Final = {"date": f"{_DATE}$", "timestamp": rf"{_DATE}([T ]\d\d:\d\d:\d\d(\.\d{{1,6}})?{_ZONE})?$"}


@dataclass(frozen=True, slots=True)
class ParsedFields:
    """The fields of the objects in a column of texts.

    Attributes:
        text: the column, of strings or of bytes.
        fields: as they are read; times in JSON as strings.
        agreed: name of the column that is true where the fields are what Spark would read.
        times: for each field ``"date"`` or ``"timestamp"``, if it is one in JSON; else None.
        form: of the bytes; None for JSON.
        shows: True where something else reads the texts; False: of those that agree none is left.
    """

    text: str
    fields: pa.Schema
    agreed: str
    times: tuple[str | None, ...]
    form: Avro | None = None
    shows: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that hold the fields."""
        return tuple(f"{self.agreed}_{place}" for place in range(len(self.fields)))

    def read(self, rows: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return the columns of rows."""
        texts = flatten(rows.column(self.text))
        agreed = np.array(pc.is_valid(texts), np.bool_)
        if not len(texts):
            columns = [pa.nulls(0, field.type) for field in self.fields]
        elif self.form is None:
            columns = self._json(texts, agreed)
        else:
            found, bad = codec.decode(texts, self.form, "value", self.fields)
            columns = [found[name] for name in self.fields.names]
            agreed[[one.index for one in bad]] = False
        return dict(zip((*self.names, self.agreed), (*columns, pa.array(agreed)), strict=True))

    def _json(self, texts: pa.Array, agreed: np.ndarray[Any, Any]) -> list[pa.Array]:
        columns, declined = read_flat(BinaryColumn.of(texts), len(texts), self.fields)
        agreed[declined] = False
        for column, kind in zip(columns, self.times, strict=True):
            if kind is not None:
                agreed &= _plain_times(column, kind)
        sizes = np.array(pc.fill_null(pc.binary_length(texts), 0))
        for row in np.flatnonzero(agreed & (sizes >= _LONG)).tolist():
            if sizes[row] > _LONGEST or pc.match_substring_regex(texts.slice(row, 1), _DIGITS)[0].as_py():
                agreed[row] = False
        return columns


def add_parsed(added: Sequence[ParsedFields], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows with what is parsed behind their own columns."""
    for rows in batches:
        parsed = {name: column for fields in added for name, column in fields.read(rows).items()}
        made = dict(zip(rows.schema.names, rows.columns, strict=True)) | parsed
        for text in {fields.text for fields in added if not fields.shows}:
            known = functools.reduce(pc.and_, (made[fields.agreed] for fields in added if fields.text == text))
            made[text] = pc.if_else(known, pa.scalar(None, made[text].type), made[text])
        # Whatever is never null is said to be so, as where there are no rows.
        schema = pa.schema([*rows.schema, *(pa.field(name, column.type) for name, column in parsed.items())])
        yield pa.RecordBatch.from_arrays([*made.values()], schema=schema)


def _plain_times(texts: pa.Array, kind: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which texts are times that Spark casts; nulls are."""
    column, count = BinaryColumn.of(texts), len(texts)
    there = parse_dates(column, count)[1] if kind == "date" else parse_timestamps(column, count, zone_allowed=True)[1]
    there[~np.array(pc.fill_null(pc.match_substring_regex(texts, _PLAIN[kind]), True))] = False
    return there
