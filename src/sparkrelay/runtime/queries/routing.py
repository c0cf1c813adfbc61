"""Chooses who answers a query: this instance, the one with the active task, or a standby. One hop, no loops."""

from __future__ import annotations

import contextlib
import functools
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkrelay.errors import (
    InvalidStateStoreException,
    InvalidStateStorePartitionException,
    StateStoreNotAvailableException,
)
from sparkrelay.protocol import HostInfo
from sparkrelay.runtime.queries.peers import Peers, as_text, pages
from sparkrelay.runtime.queries.query import Answer, Query

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparkrelay.config import StreamsConfig
    from sparkrelay.operators.table.reading import StoreRead
    from sparkrelay.runtime.queries.instance_queries import InstanceQueries
    from sparkrelay.runtime.queries.local_stores import LocalTask
    from sparkrelay.runtime.queries.query import QueryScope
    from sparkrelay.runtime.queries.store_keys import KeptKeys

_UNASSIGNED: Final = "this instance has no assignment yet; try again soon"


def all_rows(
    queries: InstanceQueries, config: StreamsConfig, store: str, scope: QueryScope, *, everywhere: bool
) -> pa.Table:
    """Return all rows of a store, of this instance or of all instances.

    Raises:
        StateStoreNotAvailableException: no instance can answer for some of them now.
    """
    queries.require_running()
    keys = queries.local.keys(store)
    if not everywhere or queries.is_global(store):
        return _table(keys, [one.read.rows for one in queries.local.answer(Query(keys, scope, "rows"))])
    router, limit = Router(queries, config), config.queries_max_rows
    said = {"isolation": scope.isolation, "stale": str(scope.stale).lower(), "limit": str(limit)}
    if scope.max_lag is not None:
        said["max_lag"] = str(scope.max_lag)

    def page(partition: int, at: bytes) -> Answer:
        one = replace(scope, partitions=frozenset({partition}))
        query = Query(keys, one, "page", after=at, limit=limit, parameters={**said, "after": as_text(at)})
        return router.answer(query, forwarded=False)

    with contextlib.closing(router):
        width = queries.group.width(keys.spec.subtopology)
        batches = [rows for number in range(width) for rows in pages(functools.partial(page, number))]
    if not batches:
        raise StateStoreNotAvailableException(_UNASSIGNED)
    return _table(keys, batches)


def _table(keys: KeptKeys, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    # PySpark's createDataFrame drops everything after an empty batch.
    return pa.Table.from_batches([rows for rows in batches if rows.num_rows], keys.layout.columns)


class Router:
    """Answers queries, with the help of other instances. Thread-safe."""

    def __init__(self, queries: InstanceQueries, config: StreamsConfig) -> None:
        self._queries = queries
        self._peers = Peers(config.application_server, config.queries_token, config.queries_timeout_ms / 1000)
        self._own = HostInfo.parse(config.application_server) if config.application_server else None

    def close(self) -> None:
        """Close the connections to other instances."""
        self._peers.close()

    def answer(self, query: Query, *, forwarded: bool) -> Answer:
        """Return the answer to a query; one ``forwarded`` by another instance is answered here.

        Raises:
            InvalidStateStorePartitionException: a forwarded query asks for rows that are not here.
            StateStoreNotAvailableException: no instance can answer now.
        """
        asked = query
        if query.kind in {"windows", "rows"} and query.limit is not None:
            # Ask for one row more than allowed, to see whether any is left out.
            asked = replace(query, limit=query.limit + 1)
        if forwarded or self._queries.is_global(query.store):
            return _merged(query, [self._here(asked)])
        return _merged(query, self._every_partition(asked) if query.key is None else self._of_key(asked))

    def _of_key(self, query: Query) -> list[Answer]:
        """Look for a key here, then where its task runs, then on its standbys if these may answer."""
        own = None
        try:
            own = self._here(query)
            if not own.may_lack:
                return [own]
            error: InvalidStateStoreException = StateStoreNotAvailableException("the copy here has no such key yet")
        except (InvalidStateStorePartitionException, StateStoreNotAvailableException) as refused:
            error = refused
        found = self._queries.located(query.keys, query.key)
        # Partitions that the query names take precedence over Kafka's default partitioner.
        if found.partition is None or query.scope.partitions is not None:
            # The key may be in any of several partitions: the first answer with a row counts.
            answers = self._every_partition(query)
            hit = next((answer for answer in answers if not answer.is_empty), None)
            return answers if hit is None else [hit]
        hosts = _hosts(query, found.active_host, found.standby_hosts)
        row = query.keys.fingerprint if query.as_json else None
        try:
            answer = self._first(query, hosts, error, row=row)
        except StateStoreNotAvailableException:
            if own is None:
                raise
            answer = own
        if own is not None and own.lag < answer.lag and answer.may_lack:
            answer = own
        return [answer]

    def _every_partition(self, query: Query) -> list[Answer]:
        """Read every partition where its task runs or, if allowed, on a standby."""
        subtopology, scope = query.keys.spec.subtopology, query.scope
        group = self._queries.group
        wanted = scope.partitions or frozenset(range(group.width(subtopology)))
        if not wanted:
            raise StateStoreNotAvailableException(_UNASSIGNED)
        copies = [task for task in self._queries.tasks(query.store) if task.may_answer(scope)]
        here = {task.id.partition for task in copies}
        answers, behind, answered_here = list[Answer](), frozenset[int](), True
        if mine := wanted & here:
            # A local copy that lags may not have a key yet; then other instances are asked as well.
            if query.key is not None:
                behind = mine - {task.id.partition for task in copies if task.lag == 0}
            try:
                answers.append(self._here(replace(query, scope=replace(scope, partitions=mine))))
                behind = behind if answers[0].may_lack else frozenset()
            except StateStoreNotAvailableException:
                if not behind:
                    raise
                answered_here = False
                if sure := mine - behind:
                    answers.append(self._here(replace(query, scope=replace(scope, partitions=sure))))
        by_hosts: dict[tuple[bool, tuple[HostInfo, ...]], set[int]] = defaultdict(set)
        for partition in (wanted - here) | behind:
            hosts = _hosts(query, *group.hosts_of(subtopology, partition))
            by_hosts[partition in behind, hosts].add(partition)
        for (is_behind, candidates), partitions in sorted(by_hosts.items()):
            missing = StateStoreNotAvailableException(
                f"no reachable instance has partition {', '.join(map(str, sorted(partitions)))} of store "
                f"{query.store!r} now; try again soon"
            )
            listed = ",".join(map(str, sorted(partitions)))
            try:
                answers.append(self._first(query, candidates, missing, {"partition": listed}))
            except StateStoreNotAvailableException:
                if not (is_behind and answered_here):
                    raise
        return answers

    def _first(
        self,
        query: Query,
        hosts: Iterable[HostInfo],
        error: InvalidStateStoreException,
        more: Mapping[str, str] | None = None,
        row: str | None = None,
    ) -> Answer:
        """Return the answer of the first instance that answers.

        For a key: of the first one that has it or lacks nothing, else of the one with the smallest lag.

        Raises:
            StateStoreNotAvailableException: none answers.
        """
        said = [str(error)]
        self._peers.keep_only(self._queries.group.hosts)
        parameters = {**query.parameters, **(more or {})}
        nothing: Answer | None = None
        for host in hosts:
            if host == self._own:
                continue
            try:
                answer = self._peers.ask(host, query.store, query.text, parameters, query.keys.layout.columns, row)
            except InvalidStateStoreException as refused:
                said.append(str(refused))
                continue
            if query.kind != "page":
                answer = replace(answer, following=None)
            if query.key is None or not answer.may_lack:
                return answer
            if nothing is None or answer.lag < nothing.lag:
                nothing = answer
        if nothing is not None:
            return nothing
        raise StateStoreNotAvailableException("; ".join(said))

    def _here(self, query: Query) -> Answer:
        found = self._queries.local.answer(query)
        rows = _together([one.read.rows for one in found])
        following = found[0].read.following if query.kind == "page" else None
        text = found[0].read.text if len(found) == 1 else None
        return Answer(rows, [self._described(*one) for one in found], following is not None, following, text)

    def _described(self, task: LocalTask, read: StoreRead) -> dict[str, Any]:
        described: dict[str, Any] = {"task": str(task.id), "partition": task.id.partition, "role": task.role}
        if self._own is not None:
            described["host"] = str(self._own)
        return described | {"position": read.position, "lag": task.lag, "watermark": read.watermark}


def _merged(query: Query, answers: Sequence[Answer]) -> Answer:
    """Return the rows of all answers, at most those that the query wants."""
    first, limit = answers[0], query.limit
    if len(answers) == 1 and (first.rows is None or limit is None or first.rows.num_rows <= limit):
        return first
    rows = _together([answer.rows for answer in answers])
    tasks = [task for answer in answers for task in answer.tasks]
    truncated = any(answer.truncated for answer in answers)
    if limit is not None and rows.num_rows > limit:
        rows, truncated = rows.slice(0, limit), True
    return Answer(rows, tasks, truncated, first.following if query.kind == "page" else None)


def _hosts(query: Query, active: HostInfo | None, standby: Iterable[HostInfo]) -> tuple[HostInfo, ...]:
    """Return the instances that may answer, in order of preference."""
    return (*([] if active is None else [active]), *(sorted(standby) if query.scope.stale else ()))


def _together(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    # Usually it is one row, and concatenating costs more than finding it.
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
