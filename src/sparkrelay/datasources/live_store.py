"""A store's table from its application's running instances, over HTTP."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from sparkrelay.errors import StateStoreNotAvailableException, UnknownStateStoreException
from sparkrelay.runtime.queries.peers import Peers, as_text, pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa

    from sparkrelay.protocol import HostInfo
    from sparkrelay.runtime.queries.query import Answer

T = TypeVar("T")

#: Pause before the instances are asked again.
_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Instances:
    """The instances to ask.

    Attributes:
        servers: ``application.server`` of one or several instances; the first answer counts.
        token: their ``queries.token``; empty if there is none.
        timeout_s: bound on an answer, and how long to retry while a task moves.
    """

    servers: tuple[HostInfo, ...]
    token: str = field(repr=False)
    timeout_s: float

    def first(self, ask: Callable[[Peers, HostInfo], T]) -> T:
        """Return the first answer.

        Raises:
            StateStoreNotAvailableException: no instance answered within ``timeout_s``.
            InvalidStateStoreException: an instance refuses.
        """
        until = time.monotonic() + self.timeout_s
        with contextlib.closing(Peers(None, self.token, self.timeout_s)) as peers:
            while True:
                said = []
                for server in self.servers:
                    try:
                        return ask(peers, server)
                    except StateStoreNotAvailableException as error:
                        said.append(str(error))
                if time.monotonic() >= until:
                    raise StateStoreNotAvailableException(
                        f"{'; '.join(said)} (retried for {self.timeout_s:g} s); mode=changelog needs no running "
                        "instance"
                    )
                time.sleep(_PAUSE_S)


@dataclass(frozen=True, slots=True)
class LiveStore:
    """A store of running instances.

    Attributes:
        keys: names of the grouping columns.
        keyed: whether Kafka's default partitioner places every key. Producers of a user's topic may use another one.
    """

    instances: Instances
    name: str
    columns: pa.Schema
    keys: tuple[str, ...]
    partitions: int
    keyed: bool

    def rows(self, partition: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition, page by page; raises as :meth:`Instances.first`."""
        return pages(lambda at: self._ask(None, {"partition": str(partition), "after": as_text(at)}))

    def row(self, key: str) -> pa.RecordBatch:
        """Return the row, if any, of a key spelt as in a path; raises as :meth:`Instances.first`."""
        # Without partitions, an instance looks where Kafka's default partitioner puts the key.
        everywhere = {} if self.keyed else {"partition": ",".join(map(str, range(self.partitions)))}
        return self._ask(key, everywhere).rows

    def rows_of(self, keys: Iterable[str]) -> Iterator[pa.RecordBatch]:
        """Yield the row of each key once, even if it is named several times in different spellings."""
        found = set()
        for key in keys:
            batch = self.row(key)
            key_columns = tuple(map(str, batch.select(self.keys).to_pylist()))
            if key_columns not in found:
                found.add(key_columns)
                yield batch

    def _ask(self, key: str | None, parameters: Mapping[str, str]) -> Answer:
        return self.instances.first(lambda peers, host: peers.ask(host, self.name, key, parameters, self.columns))


def find_store(instances: Instances, name: str) -> LiveStore:
    """Look a store up.

    Raises:
        UnknownStateStoreException: there is no such store; the message lists the others.
        StateStoreNotAvailableException: no instance answers.
    """
    listed = instances.first(Peers.stores)
    found = next((one for one in listed if one["store"] == name), None)
    if found is None:
        known = ", ".join(repr(one["store"]) for one in listed) or "nothing"
        raise UnknownStateStoreException(f"the application has no store {name!r} that can be read, but {known}")
    if not found["partitions"]:
        raise StateStoreNotAvailableException(f"store {name!r}: the instance has no assignment yet; try again soon")
    nothing = instances.first(lambda peers, host: peers.ask(host, name, None, {"partition": "0", "limit": "0"}, None))
    # Earlier releases do not report "repartitioned".
    keyed = found.get("global") is True or found.get("repartitioned") is True
    return LiveStore(instances, name, nothing.rows.schema, tuple(found["key"]), found["partitions"], keyed)
