"""Projects Arrow batches onto the schema that Spark expects of a data source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from sparkrelay.errors import ConfigException
from sparkrelay.records.arrow_buffers import as_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql.types import StructType


class Projection:
    """Picks the columns of a schema, which a user may restrict by ``schema()``.

    Raises:
        ConfigException: a column does not exist or has another type.
    """

    def __init__(self, schema: StructType, there: Iterable[pa.Field], what: str) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        known = {field.name: field.type for field in there}
        for field in self._schema:
            kind = known.get(field.name)
            if kind is None:
                raise ConfigException(f"schema() names a column {field.name!r}, but {what} has {', '.join(known)}")
            if not _alike(kind, field.type):
                raise ConfigException(
                    f"schema() says that column {field.name!r} is {field.type}; in {what} it is {kind}"
                )

    @property
    def names(self) -> list[str]:
        """The wanted columns."""
        return list(self._schema.names)

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches with the wanted columns only."""
        for batch in batches:
            columns = [as_type(batch.column(field.name), field.type) for field in self._schema]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether types differ at most in nullability and in the unit of timestamps."""
    if one.num_fields != other.num_fields or one.id != other.id:
        return False
    if one.num_fields:
        pairs = zip(_children(one), _children(other), strict=True)
        return all(_alike(a.type, b.type) and (not pa.types.is_struct(one) or a.name == b.name) for a, b in pairs)
    return pa.types.is_timestamp(one) or bool(one == other)


def _children(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(index) for index in range(kind.num_fields)]
