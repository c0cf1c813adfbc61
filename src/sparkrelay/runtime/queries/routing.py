"""Who answers a query: this instance, the one whose task has the rows, or a standby copy. One hop, and no loops."""

from __future__ import annotations

import contextlib
import functools
import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkrelay.errors import (
    InvalidStateStoreException,
    InvalidStateStorePartitionException,
    StateStoreNotAvailableException,
)
from sparkrelay.protocol import HostInfo
from sparkrelay.runtime.queries.local_stores import Query
from sparkrelay.runtime.queries.peers import Peers, as_text, pages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.queries.instance_queries import InstanceQueries
    from sparkrelay.runtime.queries.local_stores import QueryScope, TaskRows
    from sparkrelay.runtime.queries.store_keys import KeptKeys

__all__ = ["Answer", "Question", "Router", "all_rows"]

_UNASSIGNED: Final = "this instance has no assignment yet; try again soon"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and how it came.

    Attributes:
        query: what is asked.
        text: the key as it came.
        parameters: the rest as it came, but for what says who is to answer.
    """

    query: Query
    text: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Answer:
    """Rows, and where they come from.

    Attributes:
        rows: of the store.
        tasks: of each task that had a part in it where it stands.
        truncated: True if there are more.
        following: where the next page goes on, as ``Query`` says; None if these are all.
        text: the one row as JSON, if it is written already; ``rows`` are None then.
    """

    rows: pa.RecordBatch
    tasks: list[dict[str, Any]]
    truncated: bool = False
    following: bytes | None = None
    text: bytes | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is no row."""
        return self.text is None and not self.rows.num_rows


def all_rows(
    queries: InstanceQueries, config: StreamsConfig, store: str, scope: QueryScope, *, everywhere: bool
) -> pa.Table:
    """Return all rows of a store that this instance has, or all there are.

    Raises:
        StateStoreNotAvailableException: nobody has some of them just now.
    """
    queries.require_running()
    keys = queries.local.keys(store)
    if not everywhere or queries.is_global(store):
        return _table(keys, [one.rows for one in queries.local.answer(Query(keys, scope, "rows"))])
    own = HostInfo.parse(config.application_server) if config.application_server else None
    peers = Peers(config.application_server, config.queries_token, config.queries_timeout_ms / 1000)
    router, limit = Router(queries, peers, own), config.queries_max_rows

    def page(partition: int, at: bytes) -> tuple[pa.RecordBatch, bytes | None]:
        one = replace(scope, partitions=frozenset({partition}))
        said = {**_said(scope), "limit": str(limit), "after": as_text(at)}
        query = Query(keys, one, "page", after=at, limit=limit)
        answer = router.answer(Question(query, parameters=said), limit=None, forwarded=False)
        return answer.rows, answer.following

    with contextlib.closing(peers):
        width = queries.group.width(keys.spec.subtopology)
        batches = [rows for number in range(width) for rows in pages(functools.partial(page, number))]
    if not batches:
        raise StateStoreNotAvailableException(_UNASSIGNED)
    return _table(keys, batches)


def _table(keys: KeptKeys, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    # PySpark's createDataFrame stops at an empty one, and loses those behind it.
    return pa.Table.from_batches([rows for rows in batches if rows.num_rows], keys.layout.columns)


def _said(scope: QueryScope) -> dict[str, str]:
    """Return a scope as parameters."""
    said = {"isolation": scope.isolation, "stale": str(scope.stale).lower()}
    return said if scope.max_lag is None else said | {"max_lag": str(scope.max_lag)}


class Router:
    """Finds who answers; any thread may call it."""

    def __init__(self, queries: InstanceQueries, peers: Peers, own: HostInfo | None) -> None:
        """Take who may be asked.

        Args:
            queries: this instance.
            peers: the others.
            own: where this one can be asked.
        """
        self._queries = queries
        self._peers = peers
        self._own = own

    def answer(self, question: Question, *, limit: int | None, forwarded: bool) -> Answer:
        """Return the answer to a question.

        Args:
            question: what is asked.
            limit: how many rows at most.
            forwarded: True if another instance has sent it on to this one, which then asks nobody.

        Raises:
            InvalidStateStorePartitionException: it was forwarded, and the rows are not here.
            StateStoreNotAvailableException: nobody answers just now.
        """
        query = question.query
        if forwarded or self._queries.is_global(query.store):
            return self._merged(question, [self._here(query)], limit)
        if query.key is not None:
            return self._one(question, limit)
        return self._all(question, limit)

    def _one(self, question: Question, limit: int | None) -> Answer:
        """Ask for one key: here, else where its task runs, else at its standby copies if these may answer."""
        own, query = None, question.query
        try:
            own = self._here(query)
            if not _may_lack(own):
                return self._merged(question, [own], limit)
            error: InvalidStateStoreException = StateStoreNotAvailableException("the copy here has no such key yet")
        except (InvalidStateStorePartitionException, StateStoreNotAvailableException) as refused:
            error = refused
        found = self._queries.located(query.keys, query.key)
        # Who says where to look knows better than Kafka's default partitioner.
        if found.partition is None or query.scope.partitions is not None:
            return self._anywhere(question, limit)
        hosts = [] if found.active_host is None else [found.active_host]
        if query.scope.stale:
            hosts += sorted(found.standby_hosts)
        row = query.keys.fingerprint if query.as_json else None
        try:
            answer = self._first(question, hosts, error, row=row)
        except StateStoreNotAvailableException:
            if own is None:
                raise
            answer = own
        if own is not None and _lag(own) < _lag(answer) and _may_lack(answer):
            answer = own
        return self._merged(question, [answer], limit)

    def _anywhere(self, question: Question, limit: int | None) -> Answer:
        """Ask for a key in all partitions where it may be, until one has it."""
        answers = self._every_partition(question)
        for answer in answers:
            if not answer.is_empty:
                return self._merged(question, [answer], limit)
        return self._merged(question, answers, limit)

    def _all(self, question: Question, limit: int | None) -> Answer:
        return self._merged(question, self._every_partition(question), limit)

    def _every_partition(self, question: Question) -> list[Answer]:
        """Ask for all partitions, each where its task runs or, if that may be, at a standby copy."""
        query = question.query
        subtopology, scope = query.keys.spec.subtopology, query.scope
        group = self._queries.group
        wanted = scope.partitions or frozenset(range(group.width(subtopology)))
        if not wanted:
            raise StateStoreNotAvailableException(_UNASSIGNED)
        copies = [task for task in self._queries.tasks(query.store) if scope.allows(task)]
        here = {task.id.partition for task in copies}
        answers, behind, said_here = list[Answer](), frozenset[int](), True
        if mine := wanted & here:
            # Of one key a copy here that lacks something may not know yet; then others are asked as well.
            if query.key is not None:
                behind = mine - {task.id.partition for task in copies if task.lag == 0}
            try:
                answers.append(self._here(replace(query, scope=replace(scope, partitions=mine))))
                behind = behind if _may_lack(answers[0]) else frozenset()
            except StateStoreNotAvailableException:
                if not behind:
                    raise
                said_here = False
                if sure := mine - behind:
                    answers.append(self._here(replace(query, scope=replace(scope, partitions=sure))))
        left = (wanted - here) | behind
        by_hosts: dict[tuple[bool, tuple[HostInfo, ...]], set[int]] = defaultdict(set)
        for partition in left:
            active, standby = group.hosts_of(subtopology, partition)
            hosts = [] if active is None else [active]
            by_hosts[partition in behind, (*hosts, *(sorted(standby) if scope.stale else ()))].add(partition)
        for (is_behind, candidates), partitions in sorted(by_hosts.items()):
            missing = StateStoreNotAvailableException(
                f"nobody who can be asked has partition {', '.join(map(str, sorted(partitions)))} of store "
                f"{query.store!r} just now; try again soon"
            )
            listed = ",".join(map(str, sorted(partitions)))
            try:
                answers.append(self._first(question, candidates, missing, {"partition": listed}))
            except StateStoreNotAvailableException:
                if not (is_behind and said_here):
                    raise
        return answers

    def _first(
        self,
        question: Question,
        hosts: Iterable[HostInfo],
        error: InvalidStateStoreException,
        more: Mapping[str, str] | None = None,
        row: str | None = None,
    ) -> Answer:
        """Return what the first of several instances says that answers.

        Of one key: the first that has it, or lacks nothing; else the one that lacks least.

        Raises:
            StateStoreNotAvailableException: none does.
        """
        said = [str(error)]
        self._peers.keep_only(self._queries.group.hosts)
        query = question.query
        nothing: Answer | None = None
        for host in hosts:
            if host == self._own:
                continue
            try:
                parameters = {**question.parameters, **(more or {})}
                found = self._peers.ask(host, query.store, question.text, parameters, query.keys.layout.columns, row)
            except InvalidStateStoreException as refused:
                said.append(str(refused))
                continue
            following = found.following if query.paged else None
            answer = Answer(found.rows, found.tasks, found.truncated, following, found.text)
            if query.key is None or not _may_lack(answer):
                return answer
            if nothing is None or _lag(answer) < _lag(nothing):
                nothing = answer
        if nothing is not None:
            return nothing
        raise StateStoreNotAvailableException("; ".join(said))

    def _here(self, query: Query) -> Answer:
        found = self._queries.local.answer(query)
        rows = _together([one.rows for one in found])
        following = found[0].following if query.paged else None
        text = found[0].text if len(found) == 1 else None
        return Answer(rows, [self._described(one) for one in found], following is not None, following, text)

    def _merged(self, question: Question, answers: Sequence[Answer], limit: int | None) -> Answer:
        if len(answers) == 1 and (answers[0].rows is None or limit is None or answers[0].rows.num_rows <= limit):
            return answers[0]
        rows = _together([answer.rows for answer in answers])
        tasks = [task for answer in answers for task in answer.tasks]
        truncated = any(answer.truncated for answer in answers)
        if limit is not None and rows.num_rows > limit:
            rows, truncated = rows.slice(0, limit), True
        return Answer(rows, tasks, truncated, answers[0].following if question.query.paged else None)

    def _described(self, found: TaskRows) -> dict[str, Any]:
        task = found.task
        described: dict[str, Any] = {"task": str(task.id), "partition": task.id.partition, "role": task.role}
        if self._own is not None:
            described["host"] = str(self._own)
        return described | {"position": found.position, "lag": task.lag, "watermark": found.watermark}


def _may_lack(answer: Answer) -> bool:
    """Return whether there is nothing in an answer because a copy has not come so far."""
    return answer.is_empty and _lag(answer) > 0


def _lag(answer: Answer) -> float:
    """Return how many offsets the copies that have answered lack at most."""
    # Of very many copies an instance says only how many they are.
    lags = [task.get("lag", 0) for task in answer.tasks]
    return max((math.inf if lag is None else lag for lag in lags), default=0)


def _together(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    # Mostly it is one row, and joining costs more than finding it.
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
