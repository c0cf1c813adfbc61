"""Spark's reader of any of our sources: parts of it, as Arrow batches with the columns that Spark expects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from sparkrelay.datasources.plain_errors import plain_errors
from sparkrelay.errors import ConfigException
from sparkrelay.records.arrow_buffers import as_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql.types import StructType


class Source(Protocol):
    """A topic, or a store's table in its changelog or in running instances. Sent to executors."""

    def parts(self) -> Iterable[Any]:
        """Return the parts of the source now, one for each of Spark's partitions."""

    def rows(self, part: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part, with these columns at least."""


class SourceReader(DataSourceReader):
    """Reads the columns of a schema, which a user may restrict by ``schema()``.

    Raises:
        ConfigException: a column does not exist or has another type.
    """

    def __init__(self, source: Source, schema: StructType, there: Iterable[pa.Field], what: str) -> None:
        """Read ``source``, which errors call ``what`` and which has the columns ``there``."""
        self._source = source
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

    @plain_errors
    def partitions(self) -> Sequence[InputPartition]:
        """Return the parts of the source."""
        return list(map(InputPartition, self._source.parts()))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part."""
        for batch in self._source.rows(partition.value, self._schema.names):
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
