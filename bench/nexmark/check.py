"""Runs queries through the real legs, and compares what comes out with Spark SQL over the same events.

The events come in several micro-batches, cut where chance says, over two partitions of each topic; somewhere between
the instance is replaced by one that restores its state from the changelogs. Queries whose rows come when a time is over
get later events behind the last one; what comes out for these is left out of the comparison.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bench.nexmark.answers import differing_rows
from bench.nexmark.compare import newest
from bench.nexmark.query import KEYS
from bench.nexmark.sql import write_sql
from bench.nexmark.truth import make_views
from sparkrelay import KTable, StreamsBuilder
from sparkrelay.errors import SparkRelayError, TopologyException
from sparkrelay.testing import TopologyTestDriver

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from bench.nexmark.events import Event
    from bench.nexmark.query import Query
    from sparkrelay import KStream

__all__ = ["Verdict", "answered", "check", "closing_events", "stamped"]

_BATCHES: Final = 6
#: Of a pipeline of all queries, whose micro-batches take as long as those of all of them.
_BATCHES_TOGETHER: Final = 3
_PARTITIONS: Final = 2
_ANSWER: Final = "answer"

#: Windows of ten seconds, and those over their final rows, are over after so many rounds, each with its delay. Rounds
#: are less apart than the delay: on a broker, tasks take them one after the other, and none makes another's rows late.
_ROUNDS: Final = 6
_ROUND_MS: Final = 8000
#: Of each type, with other ids: whatever column spreads rows over tasks, each task gets some.
_CLOSING: Final = 16


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a query: ``exact``, ``differs: ...`` or ``cannot be written yet: ...``, and how many rows it has."""

    query: str
    text: str
    rows: int = 0

    @property
    def exact(self) -> bool:
        """The answer is SQL's."""
        return self.text == "exact"


def check(
    spark: SparkSession,
    events: Iterable[Event],
    queries: Collection[Query],
    *,
    seed: int = 0,
    sql: bool = False,
    together: bool = False,
) -> Iterator[Verdict]:
    """Yield what came of each query.

    Args:
        spark: a local session.
        events: in the order in which they arrive.
        queries: which ones.
        seed: of where the micro-batches are cut.
        sql: True for the queries as SQL text, False for those of DataFrames.
        together: True for one pipeline of all queries, which takes less time; they must be possible.
    """
    arriving = list(stamped(events))
    make_views(spark, arriving)
    # Later events would count in the answers of those that need none.
    halves = [[query for query in queries if query.final is final] for final in (False, True)]
    for some in filter(None, halves) if together else ([query] for query in queries):
        try:
            found = _answers(spark, some, arriving, seed, sql=sql)
        except TopologyException as error:
            yield from (Verdict(query.name, f"cannot be written yet: {_line(error)}") for query in some)
            continue
        except SparkRelayError as error:
            yield from (Verdict(query.name, f"differs: there is no answer: {_line(error)}") for query in some)
            continue
        for query, rows in zip(some, found, strict=True):
            shown = differing_rows(spark, query, rows)
            yield Verdict(query.name, f"differs: {'; '.join(shown)}" if shown else "exact", len(rows))


def stamped(events: Iterable[Event]) -> Iterator[Event]:
    """Add when each event ``arrived``, its record's timestamp: with the newest event so far, as if nothing waited."""
    newest_time = 0
    for event in events:
        newest_time = max(newest_time, event["at"])
        yield {**event, "arrived": newest_time}


def closing_events(after_ms: int) -> Iterator[list[Event]]:
    """Yield rounds of later and later events, all of whose ids are negative."""
    for number in range(1, _ROUNDS + 1):
        at = after_ms + number * _ROUND_MS
        events: list[Event] = []
        for id_ in range(-_CLOSING, 0):
            times = {"at": at, "dateTime": at, "arrived": at}
            events += [
                {"type": "person", "id": id_, "name": "nobody", "state": "OR", **times},
                {"type": "auction", "id": id_, "seller": id_, "category": 10, "expires": at, **times},
                {"type": "bid", "auction": id_, "bidder": id_, "price": 1, "channel": "none", "url": "", **times},
            ]
        yield events


def _answers(
    spark: SparkSession, queries: Sequence[Query], events: Sequence[Event], seed: int, *, sql: bool
) -> list[list[dict[str, Any]]]:
    """Run queries as one pipeline; returns the rows that came out of each.

    Raises:
        TopologyException: one cannot be written.
        SparkRelayError: the pipeline failed.
    """
    builder = StreamsBuilder(spark)
    kinds = {
        f"{_ANSWER}-{query.name}": write_sql(query, builder, spark, f"{_ANSWER}-{query.name}")
        if sql
        else query.write(builder, spark, f"{_ANSWER}-{query.name}")
        for query in queries
    }
    topology = builder.build()
    random = np.random.default_rng(seed)
    batches = _BATCHES if len(queries) == 1 else _BATCHES_TOGETHER
    cuts = sorted(random.choice(np.arange(1, len(events)), min(batches, len(events)) - 1, replace=False).tolist())
    parts = [events[start:stop] for start, stop in pairwise([0, *cuts, len(events)])]
    replaced_after = int(random.integers(len(parts)))
    if queries[0].final:
        parts += closing_events(events[-1]["arrived"])
    with TopologyTestDriver(topology, spark=spark, partitions=_PARTITIONS, batch="all") as driver:
        topics = {topic: driver.create_input_topic(topic) for topic in topology.source_topics}
        for number, part in enumerate(parts):
            for kind_of_event, topic in topics.items():
                topic.pipe_rows(
                    (event[KEYS[kind_of_event]], json.dumps(event).encode(), event["arrived"])
                    for event in part
                    if event["type"] == kind_of_event
                )
            driver.process()
            if number == replaced_after:
                driver.restart(from_changelog=True)
        return [
            answered(kind, [(record.key, record.value) for record in driver.create_output_topic(sink).read_records()])
            for sink, kind in kinds.items()
        ]


def answered(
    kind: type[KStream | KTable], records: Sequence[tuple[Any, dict[str, Any] | None]]
) -> list[dict[str, Any]]:
    """Return the rows of an answer, without those of closing events.

    Args:
        kind: what the answer is.
        records: keys and values, as they were written.
    """
    rows = newest(records) if issubclass(kind, KTable) else [row or {} for _, row in records]
    return [row for row in rows if all((row.get(name) or 0) >= 0 for name in ("id", "auction", "bidder", "seller"))]


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
