"""Cases of Kafka Streams' tests of tables, and of tables that are joined."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from tests.oracle.topology.kafkas_own.builders import (
    BEGINNING,
    HISTORY_MS,
    HOWS,
    LATE,
    LEFT,
    RIGHT,
    Json,
    case,
    record,
    table,
    texts,
    to,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["by_foreign_keys", "tables_alone", "tables_with_histories", "tables_with_tables"]


def _numbers(*records: tuple[str | None, int | None, int]) -> list[Json]:
    """Return records of numbers: p is 1 if the number is odd, q is the number."""
    return [
        record("topic1", key, None if number is None else {"p": number % 2, "q": str(number)}, at)
        for key, number, at in records
    ]


def _filtered(*conditions: str) -> list[Json]:
    """Return a table whose even numbers (p = 0) go to one topic, or odd ones to another, or both."""
    nodes = [table("topic1")]
    for is_ in conditions:
        nodes.append({"op": "having", "of": 0, "field": "p", "is": is_, "than": 0})
        nodes.append(to(len(nodes) - 1, {"=": "even", "<>": "odd"}[is_]))
    return nodes


def tables_alone() -> Iterator[Json]:
    """Return cases of tables that are written as they are, or filtered."""
    # There a filter also forwards a tombstone of what was never there.
    yield case(
        "KTableFilterTest.shouldPassThroughWithoutMaterialization",
        _filtered("=", "<>"),
        _numbers(("A", 1, 10), ("B", 2, 5), ("C", 3, 8), ("D", 4, 14), ("A", None, 18), ("B", None, 15)),
        exact=False,
    )
    yield case(
        "KTableFilterTest.doTestValueGetter",
        _filtered("="),
        _numbers(("A", 1, 5), ("B", 1, 10), ("C", 1, 15), ("A", 2, 10), ("B", 2, 5), ("A", 3, 15)),
        _numbers(("A", None, 10), ("B", None, 20)),
        exact=False,
    )
    yield case(
        "KTableSourceTest.testKTable",
        [table("topic1"), to(0)],
        _numbers(
            ("A", 1, 10), ("B", 2, 11), ("C", 3, 12), ("D", 4, 13), (None, 7, 14), ("A", None, 14), ("B", None, 15)
        ),
    )
    # There it writes each update all the same, as KIP-557 is switched off (KAFKA-12508).
    yield case(
        "KTableSourceTest.testKTableSourceEmitOnChange",
        [table("topic1"), to(0)],
        _numbers(("A", 1, 10), ("B", 2, 11), ("A", 1, 12), ("B", 3, 13), ("A", 1, 9), (None, 7, 14)),
        _numbers(("C", 4, 20), ("A", None, 14), ("B", None, 15)),
        exact=False,
    )


def _of_tables(how: str, *versioned: str) -> list[Json]:
    """Return a join of two tables, of which some have a history."""
    tables = [table(name, **({"history": HISTORY_MS} if name in versioned else {})) for name in (LEFT, RIGHT)]
    return [*tables, {"op": "table_join", "of": 0, "with": 1, "how": how, "as": "r"}, to(2)]


#: Of KTableKTableInnerJoinTest and its like: what is pushed to which topic, as each key's text and time.
_PUSHES: list[tuple[str, list[tuple[int | None, str | None, int]]]] = [
    (LEFT, [(0, "X", 5), (1, "X", 6), (None, "SomeVal", 42)]),
    (RIGHT, [(0, "Y", 0), (1, "Y", 10), (None, "AnotherVal", 73)]),
    (LEFT, [(key, "XX", 7) for key in range(4)]),
    (RIGHT, [(key, "YY", key * 5) for key in range(4)]),
    (LEFT, [(key, "XXX", 6) for key in range(4)]),
    (RIGHT, [(0, None, 5), (1, None, 7)]),
    (LEFT, [(key, "XXXX", 13) for key in range(4)]),
    (LEFT, [(0, None, 0), (1, None, 42), (2, None, 5), (3, None, 20)]),
]


def tables_with_tables() -> Iterator[Json]:
    """Return cases of joins of tables by their keys."""
    for how in HOWS:
        yield case(f"TableTableJoinIntegrationTest.test{how.capitalize()}", _of_tables(how), texts(BEGINNING + LATE))
    in_order = texts([*BEGINNING, (RIGHT, "d", 14), (LEFT, "D", 15)])
    without_key = [record(topic, None, {"q": text}, at) for topic, text, at in ((LEFT, "E", 16), (RIGHT, "e", 17))]
    for first, second in itertools.product(HOWS, HOWS):
        if (first, second) in {("inner", "inner"), ("outer", "inner")}:
            # There a deletion is missing, as the right table is in both joins: see test_kafka_streams_tables.py.
            continue
        again = {"op": "table_join", "of": 2, "with": 1, "how": second, "as": "rr"}
        yield case(
            f"TableTableJoinIntegrationTest.test{first.capitalize()}{second.capitalize()}",
            [*_of_tables(first)[:-1], again, to(3)],
            in_order,
            without_key,
            exact=False,
        )
    for how in HOWS:
        name = f"KTableKTable{how.capitalize()}JoinTest"
        pushes = [
            [
                record(topic, None if key is None else str(key), text and {"p": len(text), "q": text}, at)
                for key, text, at in push
            ]
            for topic, push in _PUSHES
        ]
        yield case(f"{name}.testJoin", _of_tables(how), *pushes, batched=True)
        aggregates = [["count"], ["sum", "p"], ["count", "rp"], ["sum", "rp"]]
        groups = [{"op": "regroup", "of": 2, "by": by, "aggs": aggregates, "store": f"by-{by}"} for by in ("q", "rq")]
        yield case(
            f"{name}.testSendingOldValue",
            [*_of_tables(how)[:-1], *groups, to(3, "out-q"), to(4, "out-rq")],
            *pushes,
            exact=False,
        )


def tables_with_histories() -> Iterator[Json]:
    """Return cases of joins of tables by their keys, where one table or both have a history."""
    for how, (of, versioned) in itertools.product(
        HOWS,
        {"VersionedStores": (LEFT, RIGHT), "LeftVersionedOnly": (LEFT,), "RightVersionedOnly": (RIGHT,)}.items(),
    ):
        yield case(
            f"TableTableJoinIntegrationTest.test{how.capitalize()}With{of}",
            _of_tables(how, *versioned),
            texts(BEGINNING + LATE),
        )


#: KTableKTableForeignKeyJoinIntegrationTest: name -> inputs. Each is topic, key, value and what it names, and the time
#: where that is not the input's number.
_FOREIGN: dict[str, list[tuple[Any, ...]]] = {
    "doJoinFromLeftThenDeleteLeftEntity": [
        *((RIGHT, "k", 1), (RIGHT, "l", 2), (RIGHT, "m", 3)),
        *((LEFT, "lhs1", 1, "x"), (LEFT, "lhs2", 2, "y"), (LEFT, "lhs3", 3, "x"), (LEFT, "lhs1", None)),
    ],
    "doJoinFromLeftThenUpdateFkThenRevertBack": [
        *((RIGHT, "k", 1), (RIGHT, "l", 2)),
        *((LEFT, "lhs1", 1, "x"), (LEFT, "lhs1", 1, "y"), (LEFT, "lhs1", 1, "x")),
    ],
    "doJoinFromRightThenDeleteRightEntity": [
        *((LEFT, "lhs1", 1, "x"), (LEFT, "lhs2", 2, "y"), (LEFT, "lhs3", 3, "x")),
        *((RIGHT, "k", 1), (RIGHT, "l", 2), (RIGHT, "m", 3), (RIGHT, "k", None)),
    ],
    "shouldEmitTombstoneWhenDeletingNonJoiningRecords": [
        *((LEFT, "lhs1", 1, "x"), (LEFT, "lhs1", None), (LEFT, "lhs1", None)),
    ],
    "shouldNotEmitTombstonesWhenDeletingNonExistingRecords": [(LEFT, "lhs1", None)],
    "joinShouldProduceNullsWhenValueHasNonMatchingForeignKey": [
        *((LEFT, "lhs1", 1, "x"), (LEFT, "lhs1", 1, "y"), (LEFT, "lhs1", 1, "z")),
        *((RIGHT, "k", 1), (LEFT, "lhs1", 1, "x"), (LEFT, "lhs1", 1, "y")),
    ],
    "shouldUnsubscribeOldForeignKeyIfLeftSideIsUpdated": [
        *((RIGHT, "k", 1), (RIGHT, "l", 2), (LEFT, "lhs1", 1, "x"), (LEFT, "lhs1", 1, "y"), (RIGHT, "k", 3)),
    ],
    "shouldEmitRecordOnNullForeignKeyForLeftJoins": [(LEFT, "lhs1", 1)],
    "shouldEmitRecordWhenOldAndNewFkDiffer": [(LEFT, "lhs1", 1, "x"), (LEFT, "lhs1", 1)],
    # Neither side has versions.
    "shouldIgnoreOutOfOrderRecordsIffVersioned": [
        *((RIGHT, "k", 1, None, 4), (LEFT, "lhs1", 1, "x", 3), (LEFT, "lhs2", 2, "x", 5)),
        *((LEFT, "lhs2", None, None, 6), (LEFT, "lhs1", 11, "x", 2), (LEFT, "lhs2", 12, "x", 2)),
        *((LEFT, "lhs1", None, None, 2), (LEFT, "lhs1", 21, "x", 8), (LEFT, "lhs2", 22, "x", 8)),
        *((RIGHT, "k", 11, None, 1), (RIGHT, "k", None, None, 1), (RIGHT, "k", 21, None, 6)),
    ],
}


def by_foreign_keys() -> Iterator[Json]:
    """Return cases of joins of tables by a foreign key: x, y and z name the right keys k, l and m."""
    for (name, inputs), how in itertools.product(_FOREIGN.items(), ("inner", "left")):
        records = []
        for index, (topic, key, number, *more) in enumerate(inputs):
            names, at = [*more, None, None][:2]
            fields = {"p": number, "q": names}
            value = {field: given for field, given in fields.items() if given is not None}
            records.append(record(topic, key, value or None, index if at is None else at))
        yield case(
            f"KTableKTableForeignKeyJoinIntegrationTest.{name} {how}",
            [
                *(table(LEFT), table(RIGHT)),
                {"op": "table_join", "of": 0, "with": 1, "how": how, "as": "r", "foreign": "q", "store": "joined"},
                to(2),
                # Its topology joins what is joined with the left table again.
                {"op": "table_join", "of": 2, "with": 0, "how": how, "as": "rr"},
                to(4, "rejoined"),
            ],
            records,
            exact=False,
        )
