"""The stores of an application by their changelog topics: names, descriptions and rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

from sparkrelay.datasources.changelog_rows import changelog_rows, record_name, require_rows
from sparkrelay.errors import OffsetOutOfRangeException, StateStoreException
from sparkrelay.operators.descriptions import read_description
from sparkrelay.runtime.topics.topic_names import TopicNames
from sparkrelay.state.changelog import SCHEMA_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from sparkrelay.datasources.changelog_rows import Fetcher
    from sparkrelay.datasources.cluster import Cluster, Span
    from sparkrelay.datasources.key_values import WantedKeys
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


def stores_by_name(cluster: Cluster, application_id: str) -> dict[str, str]:
    """Return the changelog topics of an application by store; raises StateStoreException if there are none."""
    names = TopicNames(application_id)
    prefix, suffix = names.changelog("\0").split("\0")
    topics = sorted(t for t in cluster.topics() if t.startswith(prefix) and t.endswith(suffix) and t != prefix + suffix)
    if not topics:
        raise StateStoreException(
            f"there is no changelog topic {prefix}...{suffix}: is application.id={application_id!r} right, and has it "
            "run on this cluster?"
        )
    return {topic.removeprefix(prefix).removesuffix(suffix): topic for topic in topics}


def stores(cluster: Cluster, topics: Mapping[str, str]) -> list[Store]:
    """Return the stores of :func:`stores_by_name` with their changelogs' offsets."""
    partitions = cluster.partitions(topics.values())
    spans: dict[str, list[Span]] = {topic: [] for topic in topics.values()}
    for span in cluster.spans(partition for some in partitions.values() for partition in some):
        spans[span.partition.topic].append(span)
    return [Store(name, topic, tuple(spans[topic])) for name, topic in topics.items()]


def table(cluster: Cluster, fetcher: Fetcher, application_id: str, name: str) -> StoredTable:
    """Return a store whose rows can be read.

    Raises:
        StateStoreException: there is no such store, or it has no rows to show; the message lists the others.
    """
    topics = stores_by_name(cluster, application_id)
    if name not in topics:
        raise StateStoreException(
            f"application {application_id!r} has no store {name!r} with a changelog, but {_listed(topics)}. Read a "
            "table whose source topic is its changelog (topology.optimization) from that topic; a store without "
            "changelog exists only on its instance"
        )
    (store,) = stores(cluster, {name: topics[name]})
    store, found = described(cluster, fetcher, store)
    if found is None:
        raise StateStoreException(_undescribed(store))
    if (other := of_another(application_id, store, found)) is not None:
        raise StateStoreException(
            f"application {application_id!r} has no store {name!r}: topic {store.topic!r} is the changelog of store "
            f"{found.store!r} of application {other!r}; name that application"
        )
    if found.layout is None:
        others = stores(cluster, {other: topic for other, topic in topics.items() if other != name})
        readable = [
            other.name
            for other in others
            if (said := described(cluster, fetcher, other)[1]) is not None
            and said.layout is not None
            and of_another(application_id, other, said) is None
        ]
        raise StateStoreException(
            f"store {name!r} holds {found.why_not}, which cannot be shown as rows. Stores of application "
            f"{application_id!r} that can be read: {_listed(readable)}"
        )
    require_rows(found.layout)
    return StoredTable(store, replace(found.layout, store=store.name))


def described(cluster: Cluster, fetcher: Fetcher, store: Store) -> tuple[Store, StoreDescription | None]:
    """Return a store as it is now, and its :func:`description`.

    Changelogs are truncated where windows have expired; if that happens during the read, it starts over.
    """
    for _ in range(_TRIES - 1):
        try:
            return store, description(fetcher, store)
        except OffsetOutOfRangeException:
            (store,) = stores(cluster, {store.name: store.topic})
    return store, description(fetcher, store)


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


def of_another(application_id: str, store: Store, found: StoreDescription) -> str | None:
    """Return the application of a store whose topic only seems to be ours: ``a-b``, if we are ``a``; else None."""
    if found.store is None or not store.name.endswith(f"-{found.store}"):
        return None
    return f"{application_id}-{store.name.removesuffix(found.store)}".removesuffix("-")


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
