"""The stores of an application by their changelog topics: names, descriptions and rows."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow.compute as pc

from sparkrelay.consumer.fetch.bounded import BoundedFetcher
from sparkrelay.datasources.changelog_rows import changelog_rows, record_name, require_rows
from sparkrelay.datasources.cluster import Cluster, require_committed
from sparkrelay.datasources.key_values import WantedKeys
from sparkrelay.errors import OffsetOutOfRangeException, StateStoreException
from sparkrelay.operators.descriptions import read_description
from sparkrelay.runtime.topics.topic_names import TopicNames
from sparkrelay.state.changelog import SCHEMA_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from sparkrelay.datasources.changelog_rows import Fetcher
    from sparkrelay.datasources.cluster import Span
    from sparkrelay.operators.descriptions import StoreDescription
    from sparkrelay.operators.table.layout import TableLayout
    from sparkrelay.types import TopicPartition

#: Offsets of each partition to read at once, backwards from the end: tasks write descriptions near the end.
_STEPS: Final = (1_000, 150_000, 1 << 62)
#: A changelog that is truncated during each of several reads would be so forever.
_TRIES: Final = 5
_COLUMNS: Final = frozenset({"key", "value", "offset", "timestamp"})


@dataclass(frozen=True, slots=True)
class Store:
    """A store that has a changelog, with the offsets of each of its partitions."""

    name: str
    topic: str
    spans: tuple[Span, ...]

    @property
    def records(self) -> int:
        """Upper bound on the records of its changelog; compaction leaves gaps."""
        return sum(span.stop - span.start for span in self.spans)


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A store whose rows can be read from its changelog, by its layout."""

    store: Store
    layout: TableLayout

    @property
    def name(self) -> str:
        """The store's name."""
        return self.store.name

    @property
    def columns(self) -> pa.Schema:
        """The columns of a row."""
        return self.layout.columns

    @property
    def keys(self) -> Sequence[str]:
        """Names of the grouping columns."""
        return list(self.layout.keys.names)

    def spans(self, wanted: WantedKeys | None) -> list[Span]:
        """Return the partitions that may have the wanted rows; None wants all."""
        numbers = None if wanted is None else wanted.partitions(len(self.store.spans))
        return [span for span in self.store.spans if numbers is None or span.partition.partition in numbers]

    def rows(self, fetcher: Fetcher, span: Span, wanted: WantedKeys | None) -> Iterator[pa.RecordBatch]:
        """Yield the wanted rows of a partition; raises as :func:`changelog_rows`."""
        rows = changelog_rows(fetcher, self.layout, span, None if wanted is None else wanted.message_keys)
        return rows if wanted is None else wanted.of(rows)


class TableReader:
    """Reads the tables of an application from its changelogs, one partition after the other."""

    def __init__(self, cluster: Cluster, fetcher: Fetcher, application_id: str) -> None:
        self._cluster = cluster
        self._fetcher = fetcher
        self._application_id = application_id

    @classmethod
    @contextlib.contextmanager
    def open(cls, settings: Mapping[str, Any], application_id: str) -> Iterator[Self]:
        """Connect for the duration of a block, by a consumer's settings.

        Raises:
            ConfigException: a setting is not valid.
            TimeoutException: no broker answers.
        """
        require_committed(settings)
        with Cluster.open(settings) as cluster, BoundedFetcher(settings) as fetcher:
            yield cls(cluster, fetcher, application_id)

    def stores(self) -> Iterator[tuple[Store, StoreDescription | None]]:
        """Yield the stores that have a changelog, each with its description there, if any.

        Raises:
            StateStoreException: there are none.
            SerializationException: a description cannot be read.
        """
        for store in self.with_offsets(self._topics()):
            now, found = self.described(store)
            if found is None or self._other(now, found) is None:
                yield now, found

    def table(self, name: str) -> StoredTable:
        """Return a store whose rows can be read.

        Raises:
            StateStoreException: there is no such store, or it has no rows to show; the message lists the others.
        """
        topics = self._topics()
        if name not in topics:
            raise StateStoreException(
                f"application {self._application_id!r} has no store {name!r} with a changelog, but {_listed(topics)}. "
                "Read a table whose source topic is its changelog (topology.optimization) from that topic; a store "
                "without changelog exists only on its instance"
            )
        store, found = self.described(*self.with_offsets({name: topics[name]}))
        if found is None:
            raise StateStoreException(_undescribed(store))
        if (other := self._other(store, found)) is not None:
            raise StateStoreException(
                f"application {self._application_id!r} has no store {name!r}: topic {store.topic!r} is the changelog "
                f"of store {found.store!r} of application {other!r}; name that application"
            )
        if found.layout is None:
            readable = [one.name for one, said in self.stores() if said is not None and said.layout is not None]
            raise StateStoreException(
                f"store {name!r} holds {found.why_not}, which cannot be shown as rows. Stores of application "
                f"{self._application_id!r} that can be read: {_listed(readable)}"
            )
        require_rows(found.layout)
        return StoredTable(store, replace(found.layout, store=store.name))

    def rows(self, found: StoredTable, key: Mapping[str, Any] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table, or those with some values of its key; raises as ``changelog_rows``."""
        wanted = WantedKeys.of_values(found.layout, key) if key else None
        for span in found.spans(wanted):
            for rows in found.rows(self._fetcher, span, wanted):
                if rows.num_rows:
                    yield rows

    def with_offsets(self, topics: Mapping[str, str]) -> list[Store]:
        """Return stores, by the topic of each name, with their changelogs' offsets now."""
        partitions = self._cluster.partitions(topics.values())
        spans: dict[str, list[Span]] = {topic: [] for topic in topics.values()}
        for span in self._cluster.spans(partition for some in partitions.values() for partition in some):
            spans[span.partition.topic].append(span)
        return [Store(name, topic, tuple(spans[topic])) for name, topic in topics.items()]

    def described(self, store: Store) -> tuple[Store, StoreDescription | None]:
        """Return a store as it is now, and its :func:`description`.

        Changelogs are truncated where windows have expired; if that happens during the read, it starts over.
        """
        for _ in range(_TRIES - 1):
            try:
                return store, description(self._fetcher, store)
            except OffsetOutOfRangeException:
                (store,) = self.with_offsets({store.name: store.topic})
        return store, description(self._fetcher, store)

    def _topics(self) -> dict[str, str]:
        """Return the changelog topics of the application by store; raises StateStoreException if there are none."""
        names = TopicNames(self._application_id)
        prefix, suffix = names.changelog("\0").split("\0")
        topics = sorted(
            topic
            for topic in self._cluster.topics()
            if topic.startswith(prefix) and topic.endswith(suffix) and topic != prefix + suffix
        )
        if not topics:
            raise StateStoreException(
                f"there is no changelog topic {prefix}...{suffix}: is application.id={self._application_id!r} right, "
                "and has it run on this cluster?"
            )
        return {topic.removeprefix(prefix).removesuffix(suffix): topic for topic in topics}

    def _other(self, store: Store, found: StoreDescription) -> str | None:
        """Return the application of a store whose topic only seems to be ours: ``a-b``, if we are ``a``; else None."""
        if found.store is None or not store.name.endswith(f"-{found.store}"):
            return None
        return f"{self._application_id}-{store.name.removesuffix(found.store)}".removesuffix("-")


def description(fetcher: Fetcher, store: Store) -> StoreDescription | None:
    """Return the newest description in a changelog, if any; raises SerializationException if it is unreadable."""
    stops = {span.partition: span.stop for span in store.spans}
    starts = {span.partition: span.start for span in store.spans}
    for step in _STEPS:
        ranges = {p: (max(starts[p], stop - step), stop) for p, stop in stops.items() if stop > starts[p]}
        newest = _newest(fetcher, ranges)
        if newest is not None:
            _, name, value = newest
            return read_description(value, name)
        stops = {partition: start for partition, (start, _) in ranges.items()}
    return None


def _newest(fetcher: Fetcher, ranges: Mapping[TopicPartition, tuple[int, int]]) -> tuple[pa.Scalar, str, bytes] | None:
    """Return time, record name and value of the newest description in some ranges."""
    newest = None
    for partition, batch in fetcher.fetch(ranges, columns=_COLUMNS) if ranges else ():
        at = pc.indices_nonzero(pc.fill_null(pc.equal(batch.column("key"), SCHEMA_KEY), False))
        for index in at.to_pylist():
            time, value = batch.column("timestamp")[index].as_py(), batch.column("value")[index].as_py()
            if value is not None and (newest is None or time >= newest[0]):
                newest = time, record_name(partition, batch.column("offset")[index].as_py()), value
    return newest


def _undescribed(store: Store) -> str:
    if not store.records:
        return f"store {store.name!r}: its changelog {store.topic!r} is still empty"
    return (
        f"store {store.name!r}: its changelog {store.topic!r} has no description, as an older release of SparkRelay "
        "wrote it; run the application with this release until it has processed some input"
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
