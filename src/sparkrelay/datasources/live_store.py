"""A store as the running instances of its application answer for it, over HTTP."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.errors import StateStoreNotAvailableException, UnknownStateStoreException
from sparkrelay.runtime.queries.peers import Peers, as_text, pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa

    from sparkrelay.protocol import HostInfo
    from sparkrelay.runtime.queries.peers import RemoteRows

__all__ = ["Instances", "LiveStore", "find_store"]

#: Between two rounds of questions to instances of which none could answer.
_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Instances:
    """Whom to ask.

    Attributes:
        servers: ``application.server`` of one instance or several: the first one that answers is enough.
        token: their ``queries.token``; empty if there is none.
        timeout_s: how long an answer may take, and how long to ask again while a task moves.
    """

    servers: tuple[HostInfo, ...]
    token: str = field(repr=False)
    timeout_s: float

    def first(self, ask: Callable[[Peers, HostInfo], Any]) -> Any:
        """Return what the first one says that answers.

        Raises:
            StateStoreNotAvailableException: none has, for ``timeout_s``.
            InvalidStateStoreException: one refuses.
        """
        until = time.monotonic() + self.timeout_s
        peers = Peers(None, self.token, self.timeout_s)
        try:
            while True:
                said = []
                for server in self.servers:
                    try:
                        return ask(peers, server)
                    except StateStoreNotAvailableException as error:
                        said.append(str(error))
                if time.monotonic() >= until:
                    raise StateStoreNotAvailableException(
                        f"{'; '.join(said)}. That has been so for {self.timeout_s:g} s; mode=changelog needs no "
                        "instance that runs"
                    )
                time.sleep(_PAUSE_S)
        finally:
            peers.close()


@dataclass(frozen=True, slots=True)
class LiveStore:
    """One store.

    Attributes:
        instances: who has it.
        name: of the store.
        schema: of its rows.
        keys: the columns that group.
        partitions: how many it has.
        keyed: whether each key is where Kafka's default partitioner puts it. Producers of a user's topic may put it
            elsewhere.
    """

    instances: Instances
    name: str
    schema: pa.Schema
    keys: tuple[str, ...]
    partitions: int
    keyed: bool

    def rows(self, partition: int) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition, page by page; they raise as :meth:`Instances.first`."""

        def page(at: bytes) -> tuple[pa.RecordBatch, bytes | None]:
            found = self._ask(None, {"partition": str(partition), "after": as_text(at)})
            return found.rows, found.following

        return pages(page)

    def row(self, key: str) -> pa.RecordBatch:
        """Return the row of a key, which is spelt as in a path, or none; raises as :meth:`Instances.first`."""
        # Whoever is asked looks where Kafka's default partitioner puts it, unless partitions are named.
        everywhere = {} if self.keyed else {"partition": ",".join(map(str, range(self.partitions)))}
        return self._ask(key, everywhere).rows

    def rows_of(self, keys: Iterable[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of keys, once each, however often and in whatever spelling they are named."""
        found = set()
        for key in keys:
            batch = self.row(key)
            key_columns = tuple(map(str, batch.select(self.keys).to_pylist()))
            if key_columns not in found:
                found.add(key_columns)
                yield batch

    def _ask(self, key: str | None, parameters: Mapping[str, str]) -> RemoteRows:
        answer: RemoteRows = self.instances.first(
            lambda peers, host: peers.ask(host, self.name, key, parameters, self.schema)
        )
        return answer


def find_store(instances: Instances, name: str) -> LiveStore:
    """Ask what a store is.

    Raises:
        UnknownStateStoreException: there is no such store; the message names those that there are.
        StateStoreNotAvailableException: nobody answers.
    """
    listed = instances.first(lambda peers, host: peers.stores(host))
    found = next((one for one in listed if one["store"] == name), None)
    if found is None:
        known = ", ".join(repr(one["store"]) for one in listed) or "nothing"
        raise UnknownStateStoreException(f"the application has no store {name!r} that can be read, but {known}")
    if not found["partitions"]:
        raise StateStoreNotAvailableException(f"who was asked for store {name!r} has no assignment yet; try again soon")
    nothing = instances.first(lambda peers, host: peers.ask(host, name, None, {"partition": "0", "limit": "0"}, None))
    # An instance of an earlier release does not say what is in front of a store.
    keyed = found.get("global") is True or found.get("repartitioned") is True
    return LiveStore(instances, name, nothing.rows.schema, tuple(found["key"]), found["partitions"], keyed)
