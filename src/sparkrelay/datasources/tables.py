"""The stores of an application, by its changelog topics: which there are, what they hold, and where their rows are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

from sparkrelay.datasources.changelog_rows import record_name, require_rows
from sparkrelay.errors import OffsetOutOfRangeException, StateStoreException
from sparkrelay.operators.descriptions import read_description
from sparkrelay.runtime.topics.topic_names import TopicNames
from sparkrelay.state.changelog import SCHEMA_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from sparkrelay.datasources.changelog_rows import Fetcher
    from sparkrelay.datasources.cluster import Cluster, Span
    from sparkrelay.operators.descriptions import StoreDescription
    from sparkrelay.operators.table.layout import TableLayout
    from sparkrelay.types import TopicPartition

__all__ = ["Store", "StoredTable", "described", "description", "of_another", "stores", "stores_by_name", "table"]

#: So many offsets of each partition at once, from the end backwards: tasks say it near the end.
_STEPS: Final = (1_000, 150_000, 1 << 62)
#: A changelog that is cut each time it is read is cut all the time.
_TRIES: Final = 5
_COLUMNS: Final = frozenset({"key", "value", "offset", "timestamp"})


@dataclass(frozen=True, slots=True)
class Store:
    """A store that has a changelog.

    Attributes:
        name: the store's.
        topic: its changelog.
        spans: what each partition of that holds.
    """

    name: str
    topic: str
    spans: tuple[Span, ...]

    @property
    def records(self) -> int:
        """How many records its changelog has at most; compaction leaves gaps."""
        return sum(span.stop - span.start for span in self.spans)


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A store whose rows can be read.

    Attributes:
        store: which.
        layout: how.
    """

    store: Store
    layout: TableLayout


def stores_by_name(cluster: Cluster, application_id: str) -> dict[str, str]:
    """Return the names of an application's stores that have a changelog, with their topics.

    Raises:
        StateStoreException: there are none.
    """
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
    """Return what the changelogs of stores hold, by :func:`stores_by_name`."""
    partitions = cluster.partitions(topics.values())
    spans: dict[str, list[Span]] = {topic: [] for topic in topics.values()}
    for span in cluster.spans(partition for some in partitions.values() for partition in some):
        spans[span.partition.topic].append(span)
    return [Store(name, topic, tuple(spans[topic])) for name, topic in topics.items()]


def table(cluster: Cluster, fetcher: Fetcher, application_id: str, name: str) -> StoredTable:
    """Return a store of an application whose rows are to be read.

    Raises:
        StateStoreException: there is none, or it has no rows to show; the others are named.
    """
    topics = stores_by_name(cluster, application_id)
    if name not in topics:
        raise StateStoreException(
            f"application {application_id!r} has no store {name!r} with a changelog, but {_listed(topics)}. A table "
            "whose topic is its changelog (topology.optimization) is read from that topic; a store without changelog "
            "is on its instance alone"
        )
    (store,) = stores(cluster, {name: topics[name]})
    store, found = described(cluster, fetcher, store)
    if found is None:
        raise StateStoreException(_undescribed(store))
    if (other := of_another(application_id, store, found)) is not None:
        raise StateStoreException(
            f"application {application_id!r} has no store {name!r}: topic {store.topic!r} is the changelog of store "
            f"{found.store!r} of application {other!r}; give that one"
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
            f"store {name!r} holds {found.why_not}, of which there are no rows to show. Stores of application "
            f"{application_id!r} that can be read: {_listed(readable)}"
        )
    require_rows(found.layout)
    return StoredTable(store, replace(found.layout, store=store.name))


def described(cluster: Cluster, fetcher: Fetcher, store: Store) -> tuple[Store, StoreDescription | None]:
    """Return a store as it is now, and :func:`description` of it.

    Changelogs are cut where windows have expired, and what is read may be gone by then: it is looked for again.
    """
    for _ in range(_TRIES - 1):
        try:
            return store, description(fetcher, store)
        except OffsetOutOfRangeException:
            (store,) = stores(cluster, {store.name: store.topic})
    return store, description(fetcher, store)


def description(fetcher: Fetcher, store: Store) -> StoreDescription | None:
    """Return what a changelog says of its store, by its newest record of that; None if it does not say.

    Raises:
        SerializationException: that record cannot be read.
    """
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
    """Return whose store it is if it is another application's, ``a-b`` where ``a`` is asked for; None if it is not.

    Args:
        application_id: the application whose name the topic's begins with.
        store: as the topic's name has it.
        found: what the changelog says.
    """
    if found.store is None or not store.name.endswith(f"-{found.store}"):
        return None
    return f"{application_id}-{store.name.removesuffix(found.store)}".removesuffix("-")


def _newest(fetcher: Fetcher, ranges: Mapping[TopicPartition, tuple[int, int]]) -> tuple[pa.Scalar, str, bytes] | None:
    """Return time, name and value of the newest description in those ranges."""
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
        return f"store {store.name!r}: nothing has been written to its changelog {store.topic!r} yet"
    return (
        f"store {store.name!r}: its changelog {store.topic!r} does not say what it holds, since a release of "
        "SparkRelay that does not say it wrote it; run the application with this one until it has taken in something"
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
