"""What a query wrote, as a reader sees it who wants only committed records."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.json
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from bench.children import BenchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Totals", "check_totals", "committed_reader", "last_rows", "merged", "read_messages", "read_rows"]

Totals = dict[str, tuple[int, float]]
"""User (of windows: user, ``@``, start in milliseconds since 1970) -> (orders, total)."""

_READ_TIMEOUT_S = 120.0
_PARSED_AT_ONCE = 100_000
_MERGED_AT_ONCE = 2_000_000
_TOTALS = pa.schema([("user", pa.string()), ("orders", pa.int64()), ("total", pa.float64())])
#: Without these it waits for a second whenever its queue has been full.
_BULK = {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 10}


def committed_reader(bootstrap_servers: str, topic: str, *, bulk: bool = False) -> Consumer:
    """Return a consumer of all partitions of a topic from its beginning, ``read_committed``; ``bulk`` reads ahead."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "bench-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
            **(_BULK if bulk else {}),
        }
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    return consumer


def read_rows(
    bootstrap_servers: str, topic: str, schema: pa.Schema, *, at_once: int = _PARSED_AT_ONCE
) -> Iterator[pa.Table]:
    """Read a result topic to its end; yields its JSON rows, those of each partition in their order.

    Args:
        bootstrap_servers: the broker.
        topic: the topic.
        schema: the columns.
        at_once: rows of one table, about.

    Raises:
        BenchError: a row has no value, or the topic no end.
    """
    parsing = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    for messages in read_messages(bootstrap_servers, topic, at_once=at_once):
        values = [message.value() or b"" for message in messages]
        rows = pa.json.read_json(pa.BufferReader(b"\n".join(values)), parse_options=parsing)
        if len(rows) != len(values):
            raise BenchError(f"{len(values) - len(rows)} of {len(values)} rows in {topic} have no value")
        yield rows.select(schema.names)


def read_messages(bootstrap_servers: str, topic: str, *, at_once: int = _PARSED_AT_ONCE) -> Iterator[list[Message]]:
    """Read a topic to its end; yields about ``at_once`` messages, those of each partition in their order.

    Raises:
        BenchError: the topic has no end, or cannot be read.
    """
    consumer = committed_reader(bootstrap_servers, topic, bulk=True)
    found: list[Message] = []
    try:
        open_ends = {place.partition for place in consumer.assignment()}
        deadline = time.monotonic() + _READ_TIMEOUT_S
        while open_ends:
            messages = consumer.consume(at_once, 0.2)
            if messages:
                deadline = time.monotonic() + _READ_TIMEOUT_S
            elif time.monotonic() > deadline:
                raise BenchError(f"partitions {sorted(open_ends)} of {topic} were silent for {_READ_TIMEOUT_S:g} s")
            for message in messages:
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public spelling
                    open_ends.discard(message.partition())
                else:
                    raise BenchError(f"reading {topic}: {error}")
            if found and (len(found) >= at_once or not open_ends):
                yield found
                found = []
    finally:
        consumer.close()


def merged(tables: Iterable[pa.Table], how: str) -> tuple[Totals, int]:
    """Put rows of one ``user`` together.

    Args:
        tables: ``user``, ``orders``, ``total``.
        how: ``last`` for the last row of each, ``sum`` for what all come to.

    Returns:
        The result, and how many rows there were.
    """
    waiting: list[pa.Table] = []
    count = 0

    def grouped() -> pa.Table:
        # The last of a group is only known in the order of the rows.
        groups = pa.concat_tables(waiting).group_by("user", use_threads=False)
        columns = groups.aggregate([("orders", how), ("total", how)]).select(["user", f"orders_{how}", f"total_{how}"])
        return columns.rename_columns(_TOTALS.names)

    for table in tables:
        count += len(table)
        waiting.append(table.select(_TOTALS.names))
        if sum(map(len, waiting)) >= _MERGED_AT_ONCE:
            waiting = [grouped()]
    if not waiting:
        return {}, 0
    users, orders, totals = (column.to_pylist() for column in grouped().columns)
    return dict(zip(users, zip(orders, totals, strict=True), strict=True)), count


def last_rows(bootstrap_servers: str, topic: str) -> tuple[Totals, int]:
    """Read a result topic to its end.

    Returns:
        The last row of each user, and how many rows there are in all.
    """
    return merged(read_rows(bootstrap_servers, topic, _TOTALS), "last")


def check_totals(name: str, expected: Totals, found: Totals) -> None:
    """Compare a result with what it must be.

    Raises:
        BenchError: it differs; names some users.
    """
    wrong = [user for user in expected.keys() | found.keys() if expected.get(user) != found.get(user)]
    if wrong:
        some = ", ".join(f"{u}: {found.get(u)} instead of {expected.get(u)}" for u in sorted(wrong)[:3])
        raise BenchError(f"{name} is not exact: {len(wrong)} of {len(expected)} users differ ({some})")
