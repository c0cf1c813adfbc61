"""What cases of Kafka Streams' own tests are made of."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "BEGINNING",
    "HISTORY_MS",
    "HOWS",
    "LATE",
    "LEFT",
    "RIGHT",
    "Json",
    "Texts",
    "case",
    "record",
    "stream",
    "table",
    "texts",
    "to",
]

Json = dict[str, Any]
#: Topic, text and time.
Texts = list[tuple[str, str | None, int]]

HISTORY_MS: Final = 300_000
HOWS: Final = ("inner", "left", "outer")
LEFT, RIGHT = "left", "right"
#: AbstractJoinIntegrationTest: what two topics get of one key, tombstones among it.
BEGINNING: Texts = [
    *((LEFT, None, 1), (RIGHT, None, 2), (LEFT, "A", 3), (RIGHT, "a", 4), (LEFT, "B", 5), (RIGHT, "b", 6)),
    *((LEFT, None, 7), (RIGHT, None, 8), (LEFT, "C", 9), (RIGHT, "c", 10), (RIGHT, None, 11), (LEFT, None, 12)),
    (RIGHT, None, 13),
]
#: And rows that come late.
LATE: Texts = [
    *((RIGHT, "d", 7), (LEFT, "D", 6), (LEFT, None, 2), (RIGHT, None, 3), (RIGHT, "e", 14), (LEFT, "E", 15)),
    *((LEFT, None, 10), (RIGHT, None, 9), (LEFT, "F", 4), (RIGHT, "f", 3)),
]


def case(name: str, spec: Sequence[Json], *batches: Iterable[Json], exact: bool = True, batched: bool = False) -> Json:
    """Return a case of records that come in batches.

    Args:
        name: of the test.
        spec: nodes, each with its index for its id.
        batches: of records.
        exact: whether we say what Kafka Streams says, record by record; else ours leaves out what changes nothing.
        batched: whether to compare what each batch brings as one micro-batch, too.
    """
    parts = [list(batch) for batch in batches]
    found: Json = {
        "name": name,
        "spec": [{"id": number, **node} for number, node in enumerate(spec)],
        "input": list(itertools.chain(*parts)),
        "exact": exact,
    }
    return found | {"batches": [len(part) for part in parts]} if batched else found


def record(topic: str, key: str | None, value: Json | None, ts: int) -> Json:
    """Return a record of the input."""
    return {"topic": topic, "key": key, "value": value, "ts": ts}


def stream(topic: str) -> Json:
    """Return the node of a stream."""
    return {"op": "stream", "topic": topic}


def table(topic: str, **more: Any) -> Json:
    """Return the node of a table, whose store has the name of the topic."""
    return {"op": "table", "topic": topic, "store": topic, **more}


def to(of: int, topic: str = "out") -> Json:
    """Return the node that writes to a topic."""
    return {"op": "to", "of": of, "topic": topic}


def texts(records: Texts, left: str = "q", right: str = "q") -> list[Json]:
    """Return records of one key, each topic's text in a field of that name."""
    fields = {LEFT: left, RIGHT: right}
    return [record(topic, "k", text and {fields[topic]: text}, at) for topic, text, at in records]
