"""Cases of Kafka Streams' tests of streams that are joined with tables and with each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle.topology.kafkas_own.builders import (
    BEGINNING,
    HISTORY_MS,
    LATE,
    LEFT,
    RIGHT,
    Json,
    case,
    record,
    stream,
    table,
    texts,
    to,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["streams_with_streams", "streams_with_tables"]


def _with_table(how: str, *, grace: int | None = None, history: int | None = None) -> list[Json]:
    """Return a stream's join with a table."""
    lookup = {"op": "lookup", "of": 0, "table": 1, "how": how}
    return [
        stream(LEFT),
        table(RIGHT, **({} if history is None else {"history": history})),
        lookup if grace is None else lookup | {"grace": grace},
        to(2),
    ]


def streams_with_tables() -> Iterator[Json]:
    """Return cases of streams that look into a table."""
    for how in ("inner", "left"):
        name = f"IntegrationTest.test{how.capitalize()}"
        records = texts(BEGINNING + LATE, left="s")
        yield case(f"StreamTableJoin{name}", _with_table(how), records)
        name += "WithVersionedStore"
        yield case(f"StreamTableJoin{name}", _with_table(how, history=HISTORY_MS), records)
        yield case(f"StreamTableJoinWithGrace{name}", _with_table(how, grace=2, history=HISTORY_MS), records)

    def to_stream(count: int, text: str) -> list[Json]:
        return [record(LEFT, str(key), {"s": f"{text}{key}"}, key) for key in range(count)]

    def to_table(count: int, text: str | None, at: int | None = None) -> list[Json]:
        return [
            record(RIGHT, str(key), text and {"q": f"{text}{key}"}, 1000 - key if at is None else at)
            for key in range(count)
        ]

    yield case(
        # And shouldNotJoinWithEmptyTableOnStreamUpdates.
        "KStreamKTableJoinTest.shouldNotJoinOnTableUpdates",
        _with_table("inner"),
        *(to_stream(2, "X"), to_table(2, "Y"), to_stream(4, "X")),
        *(to_table(4, "YY"), to_stream(4, "X"), to_table(4, "YYY")),
        batched=True,
    )
    yield case(
        # And shouldJoinOnlyIfMatchFoundOnStreamUpdates.
        "KStreamKTableJoinTest.shouldClearTableEntryOnNullValueUpdates",
        _with_table("inner"),
        *(to_table(4, "Y"), to_stream(4, "X"), to_table(2, None), to_stream(4, "XX")),
        batched=True,
    )
    waiting = _with_table("inner", grace=2, history=HISTORY_MS)
    yield case(
        "KStreamKTableJoinTest.shouldDelayJoinByGracePeriod",
        waiting,
        *(to_table(4, "Y", 0), to_stream(4, "X"), to_table(4, "YY", 0), to_stream(4, "X")),
        *([record(LEFT, "5", {"s": "test"}, 7)], to_table(4, "YYY", 0)),
    )
    yield case(
        "KStreamKTableJoinTest.shouldHandleLateJoinsWithGracePeriod",
        waiting,
        *(to_table(4, "Y", 0), to_stream(4, "X"), to_stream(1, "X")),
    )


def _of_streams(how: str, grace: int) -> list[Json]:
    join = {"op": "stream_join", "of": 0, "with": 1, "how": how, "within": 100, "grace": grace}
    return [stream(LEFT), stream(RIGHT), join, to(2)]


def _push(topic: str, text: str, at: int = 0, keys: Iterable[int] = range(4)) -> list[Json]:
    return [record(topic, str(key), {"s": f"{text}{key}"}, at) for key in keys]


def _passed(at: int) -> list[list[Json]]:
    """Return batches that take both topics to a time. Their keys find nothing."""
    return [_push(LEFT, "x", at, keys=[-1]), _push(RIGHT, "y", at, keys=[-2])]


#: All is over for both in the end: see specs.py.
_OVER = [*_passed(1_000_000), *_passed(2_000_000)]


def streams_with_streams() -> Iterator[Json]:
    """Return cases of joins of streams: rows go together that are at most 100 ms apart."""
    tests = {
        "inner": "KStreamKStreamJoinTest",
        "left": "KStreamKStreamLeftJoinTest",
        "outer": "KStreamKStreamOuterJoinTest",
    }
    names = {"inner": "testJoin", "left": "runLeftJoin", "outer": "runOuterJoin"}
    two = range(2)
    for how, test in tests.items():
        yield case(
            f"{test}.{names[how]}",
            _of_streams(how, 0),
            *(_push(LEFT, "A", keys=two), _push(RIGHT, "a", keys=two), _push(LEFT, "B"), _push(RIGHT, "b")),
            *(_push(LEFT, "C"), _push(RIGHT, "c", keys=two)),
            *_OVER,
            exact=how == "inner",
            batched=True,
        )
        # There late rows are joined without any grace (kafka#15189).
        for first, second in ((LEFT, RIGHT), (RIGHT, LEFT)):
            yield case(
                f"{test}.testWindowing {first} first",
                _of_streams(how, 1000),
                [record(first, str(key), {"s": f"B{key}"}, 1000 + key) for key in range(4)],
                *(_push(second, "b", time) for time in (*range(1100, 1105), *range(899, 904))),
                *_OVER,
                exact=how == "inner",
                batched=True,
            )
        yield case(
            f"KStreamKStreamJoinTest.shouldLogAndMeterOnSkippedRecordsWithNullValue {how}",
            _of_streams(how, 0),
            *(
                [record(topic, "0", None, 0), record(topic, None, None, 0), record(topic, None, {"s": "A"}, 1)]
                for topic in (LEFT, RIGHT)
            ),
            *_passed(1000),
            batched=True,
        )
    for how in ("left", "outer"):
        yield case(
            f"{tests[how]}.test{how.capitalize()}JoinDuplicates",
            _of_streams(how, 10),
            [record(LEFT, "0", {"s": text}, 0) for text in ("A0", "A0-0")],
            [record(RIGHT, "1", {"s": text}, at) for text, at in (("11", 0), ("12", 0), ("10", 111))],
            *_passed(209),
            [record(LEFT, "2", {"s": text}, 200) for text in ("A2", "A2-0")],
            [record(RIGHT, "2", {"s": text}, 201) for text in ("13", "14")],
            *_OVER,
            exact=False,
            batched=True,
        )
