"""A store's table without Spark, one partition after the other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.consumer.fetch.bounded import BoundedFetcher
from sparkrelay.datasources.changelog_rows import changelog_rows
from sparkrelay.datasources.cluster import Cluster, require_committed
from sparkrelay.datasources.key_values import message_keys, partition_of
from sparkrelay.datasources.tables import Store, described, of_another, stores, stores_by_name, table
from sparkrelay.errors import ConfigException
from sparkrelay.runtime.queries.store_keys import value_example

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sparkrelay.datasources.tables import StoredTable
    from sparkrelay.operators.descriptions import StoreDescription

__all__ = ["TableReader", "key_of"]

_TRUTH: Final = {"true": True, "false": False}


class TableReader:
    """Reads the tables of an application. Use it as a context manager.

    Args:
        settings: a consumer's settings.
        application_id: the application's.

    Raises:
        ConfigException: a setting cannot be.
        TimeoutException: no broker answers.
    """

    def __init__(self, settings: Mapping[str, Any], application_id: str) -> None:
        require_committed(settings)
        self._application_id = application_id
        self._fetcher = BoundedFetcher(settings)
        try:
            self._cluster = Cluster(settings)
        except BaseException:
            self._fetcher.close()
            raise

    def stores(self) -> Iterator[tuple[Store, StoreDescription | None]]:
        """Yield the stores that have a changelog, each with what that says of it, if it says anything.

        Raises:
            StateStoreException: there are none.
            SerializationException: a changelog says something that cannot be read.
        """
        for store in stores(self._cluster, stores_by_name(self._cluster, self._application_id)):
            now, found = described(self._cluster, self._fetcher, store)
            if found is None or of_another(self._application_id, now, found) is None:
                yield now, found

    def table(self, store: str) -> StoredTable:
        """Return a store whose rows can be read.

        Raises:
            StateStoreException: there is none, or it has no rows to show; the others are named.
        """
        return table(self._cluster, self._fetcher, self._application_id, store)

    def rows(self, found: StoredTable, key: Mapping[str, Any] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table.

        Args:
            found: which.
            key: values of columns that they have; None for all rows.

        Raises:
            SerializationException: a record is none of such a store; names topic, partition and offset.
        """
        spec, spans = found.layout, found.store.spans
        keys = message_keys(spec, key) if key else None
        partition = partition_of(spec, key, len(spans)) if key else None
        for span in spans:
            if partition in {None, span.partition.partition}:
                for batch in changelog_rows(self._fetcher, spec, span, keys):
                    rows = batch.filter(_matching(batch, key)) if key else batch
                    if rows.num_rows:
                        yield rows

    def close(self) -> None:
        """Close the connections."""
        self._fetcher.close()
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def key_of(found: StoredTable, texts: Sequence[str]) -> dict[str, Any]:
    """Return values of the first columns of a table's key, as somebody has typed them.

    Raises:
        ConfigException: there are more than columns, or one is none of its column's type.
    """
    names = found.layout.keys.names
    if not 0 < len(texts) <= len(names):
        examples = " ".join(_example(found.layout.columns.field(name).type) for name in names)
        raise ConfigException(
            f"{len(texts)} values for the key of store {found.store.name!r}, which has the columns {', '.join(names)}: "
            f"write 1 to {len(names)} values, such as {examples}"
        )
    return {
        field.name: _value(field.name, field.type, text) for field, text in zip(found.layout.keys, texts, strict=False)
    }


def _value(name: str, kind: pa.DataType, text: str) -> Any:
    try:
        if pa.types.is_boolean(kind):
            return _TRUTH[text.lower()]
        if pa.types.is_binary(kind):
            return bytes.fromhex(text)
        if pa.types.is_struct(kind):
            said = json.loads(text)
            return {field.name: _value(field.name, field.type, str(said[field.name])) for field in kind}
        return pa.scalar(text).cast(kind).as_py()
    except (pa.ArrowException, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ConfigException(
            f"{text!r} is not a value of the key's column {name!r}, {kind}: write it like {_example(kind)}"
        ) from error


def _example(kind: pa.DataType) -> str:
    """Return a value as people write it on a command line: in quotes for the shell, where that needs some."""
    if pa.types.is_binary(kind):
        return "4e4c0a (hexadecimal)"
    value = value_example(kind)
    return f"'{json.dumps(value)}'" if isinstance(value, dict | list) else str(value).replace("True", "true")


def _matching(batch: pa.RecordBatch, key: Mapping[str, Any]) -> pa.Array:
    found = pa.repeat(pa.scalar(True), batch.num_rows)
    for name, value in key.items():
        column = batch.column(name)
        pairs = [(column, value)]
        if isinstance(value, dict):
            pairs = [(pc.struct_field(column, field), one) for field, one in value.items()]
        for array, one in pairs:
            found = pc.and_(found, pc.fill_null(pc.equal(array, pa.scalar(one, array.type)), False))
    return found
