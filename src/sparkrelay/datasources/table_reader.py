"""A store's table without Spark, one partition after the other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from sparkrelay.consumer.fetch.bounded import BoundedFetcher
from sparkrelay.datasources.cluster import Cluster, require_committed
from sparkrelay.datasources.key_values import WantedKeys
from sparkrelay.datasources.tables import Store, described, of_another, stores, stores_by_name, table
from sparkrelay.errors import ConfigException
from sparkrelay.runtime.queries.store_keys import value_example

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sparkrelay.datasources.tables import StoredTable
    from sparkrelay.operators.descriptions import StoreDescription

_TRUTH: Final = {"true": True, "false": False}


class TableReader:
    """Reads the tables of an application, with a consumer's settings. Use it as a context manager.

    Raises:
        ConfigException: a setting is not valid.
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
        """Yield the stores that have a changelog, each with its description there, if any.

        Raises:
            StateStoreException: there are none.
            SerializationException: a description cannot be read.
        """
        for store in stores(self._cluster, stores_by_name(self._cluster, self._application_id)):
            now, found = described(self._cluster, self._fetcher, store)
            if found is None or of_another(self._application_id, now, found) is None:
                yield now, found

    def table(self, store: str) -> StoredTable:
        """Return a store whose rows can be read; raises as ``tables.table``."""
        return table(self._cluster, self._fetcher, self._application_id, store)

    def rows(self, found: StoredTable, key: Mapping[str, Any] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table, or those with some values of its key; raises as ``changelog_rows``."""
        wanted = WantedKeys.of_values(found.layout, key) if key else None
        for span in found.spans(wanted):
            for rows in found.rows(self._fetcher, span, wanted):
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
    """Parse the values of the first columns of a table's key, as typed on a command line.

    Raises:
        ConfigException: there are more values than columns, or one does not fit its column.
    """
    names = found.keys
    if not 0 < len(texts) <= len(names):
        examples = " ".join(_example(found.columns.field(name).type) for name in names)
        raise ConfigException(
            f"{len(texts)} values for the key of store {found.name!r}, which has the columns {', '.join(names)}: "
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
    """Return an example for a command line, quoted for the shell where needed."""
    if pa.types.is_binary(kind):
        return "4e4c0a (hexadecimal)"
    value = value_example(kind)
    return f"'{json.dumps(value)}'" if isinstance(value, dict | list) else str(value).replace("True", "true")
