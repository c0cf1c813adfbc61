"""Rows out of a partition of a changelog: as a table that was written so, whatever came in between."""

import random
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.doubles.state_steps import (
    NEWEST_ROWS,
    aggregates_of,
    history_of,
    places_of,
    sessions_of,
    state_spec,
    table_step,
)

from sparkrelay import hidden_columns
from sparkrelay.datasources import changelog_rows as module
from sparkrelay.datasources.changelog_rows import changelog_rows
from sparkrelay.datasources.cluster import Span
from sparkrelay.datasources.tables import Store, TableReader, description
from sparkrelay.errors import OffsetOutOfRangeException, SerializationException
from sparkrelay.operators.ranking.row_order import RowRanking
from sparkrelay.operators.table.newest_rows import NewestRows
from sparkrelay.records.keys import key_bytes
from sparkrelay.runtime.contract.store_descriptions import describe_store
from sparkrelay.state.aggregate import AggregateCodec, AggregateSpec
from sparkrelay.state.changelog import SCHEMA_KEY, Marker, encode_changelog, encode_marker
from sparkrelay.types import TopicPartition

AT = TopicPartition("app-users-changelog", 3)
ROW = pa.schema([("n", pa.int64()), ("s", pa.string())])
NEWEST = AggregateSpec("max", hidden_columns.TIMESTAMP, pa.int64(), pa.int64())
USERS = table_step([("user", pa.string())], [], ROW, NEWEST_ROWS)


class Log:
    """Records of one partition that begins at an offset, with gaps as compaction leaves them."""

    def __init__(self, records, start=0, step=1):
        self.records = [(start + step * index, *record) for index, record in enumerate(records)]
        self.start = start
        self.end = start + step * len(self.records)

    def fetch(self, ranges, *, columns=None):
        for partition, (start, stop) in ranges.items():
            if start < self.start:
                raise OffsetOutOfRangeException("gone")
            own = [record for record in self.records if start <= record[0] < stop]
            for first in range(0, len(own), 7):
                offsets, keys, values = zip(*own[first : first + 7], strict=True)
                arrays = [
                    pa.array(keys, pa.binary()),
                    pa.array(values, pa.binary()),
                    pa.array(offsets),
                    pa.array(offsets),
                ]
                yield partition, pa.record_batch(arrays, ["key", "value", "offset", "timestamp"])

    def log_start(self, partition):
        return self.start


def row_value(n, text):
    columns = [pa.array([5], pa.int64()), pa.array([n], pa.int64()), pa.array([text], pa.string())]
    names = [hidden_columns.TIMESTAMP, "n", "s"]
    tombstone = pa.array([False])
    table = pa.table([*columns, tombstone], [*names, hidden_columns.TOMBSTONE])
    return NewestRows(ROW).values(table)[0].as_py()


def record(key, value):
    keys, values = encode_changelog(pa.array([key], pa.binary()), pa.array([value], pa.binary()))
    return keys[0].as_py(), values[0].as_py()


def read(log, spec=USERS, start=None, **more):
    span = Span(AT, log.start if start is None else start, log.end)
    return [row for batch in changelog_rows(log, spec.layout, span, **more) for row in batch.to_pylist()]


@pytest.mark.parametrize("seed", range(8))
def test_the_last_record_of_each_key_counts(monkeypatch, seed):
    monkeypatch.setattr(module, "_GATHERED", 20)
    draw, expected, records = random.Random(seed), {}, []
    for number in range(200):
        if draw.random() < 0.1:
            records.append(encode_marker(Marker(number, {}, "users")))
        if draw.random() < 0.05:
            records.append((SCHEMA_KEY, describe_store(USERS)))
        user = f"user-{draw.randrange(30)}"
        if draw.random() < 0.2:
            records.append(record(user.encode(), None))
            expected.pop(user, None)
        else:
            records.append(record(user.encode(), row_value(number, f"t{number}")))
            expected[user] = {"user": user, "n": number, "s": f"t{number}"}
    log = Log(records, start=100, step=3)
    assert sorted(read(log), key=repr) == sorted(expected.values(), key=repr)
    ada = pa.array([b"user-1", b"user-2"], pa.binary())
    assert {row["user"] for row in read(log, message_keys=ada)} == {"user-1", "user-2"} & set(expected)


def test_what_was_cut_meanwhile_is_not_missed():
    log = Log([record(b"ada", row_value(1, "x"))], start=50)
    assert read(log, start=20) == [{"user": "ada", "n": 1, "s": "x"}]


def test_text_that_is_not_utf_8_is_named():
    good = row_value(1, "abcd")
    log = Log([record(b"ada", good), record(b"bob", good.replace(b"abcd", b"a\xff\xffd")), record(b"cid", good)])
    with pytest.raises(SerializationException, match="topic 'app-users-changelog', partition 3, offset 1: the record"):
        read(log)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (None, b"\x01x", "offset 0 cannot be read: it has no key"),
        (b"ada", b"\x07x", "offset 0 cannot be read: the value"),
    ],
)
def test_what_is_no_record_of_a_changelog_is_named(key, value, words):
    with pytest.raises(SerializationException, match=f"topic 'app-users-changelog', partition 3, {words}"):
        read(Log([(key, value)]))


AGGREGATES = (
    AggregateSpec("avg", "a0", pa.decimal128(10, 2), pa.decimal128(14, 6), "avg"),
    AggregateSpec("min", "a1", pa.string(), pa.string(), "min"),
    AggregateSpec("stddev_samp", "a2", pa.float64(), pa.float64(), "deviation"),
    AggregateSpec("approx_count_distinct", "a3", pa.string(), pa.int64(), "about", options=(4,)),
    AggregateSpec("first", "a4", pa.list_(pa.int64()), pa.list_(pa.int64()), "first"),
    NEWEST,
)
COUNTS = state_spec([("user", pa.string())], [], [(a.result, a.result_type) for a in AGGREGATES[:-1]], AGGREGATES)


def states(count):
    draw = random.Random(4)
    rows = pa.table(
        {
            "user": [f"user-{index % 5}" for index in range(count)],
            "a0": pa.array([Decimal(draw.randrange(1000)) for _ in range(count)], pa.decimal128(10, 2)),
            "a1": [draw.choice(["a", "bb", None]) for _ in range(count)],
            "a2": [draw.random() for _ in range(count)],
            "a3": [draw.choice("abc") for _ in range(count)],
            "a4": [[1, 2]] * count,
            hidden_columns.TIMESTAMP: [7] * count,
        }
    )
    codec = AggregateCodec(AGGREGATES)
    groups = codec.partial(rows, ["user"])
    keys = key_bytes([groups.column("user").combine_chunks()])
    return keys.to_pylist(), codec.states(groups).to_pylist()


@pytest.mark.parametrize(("spec", "seed"), [(spec, seed) for spec in ("rows", "counts") for seed in range(60)])
def test_damaged_bytes_are_rows_or_named(spec, seed):
    draw = random.Random(seed)
    if spec == "rows":
        found, keys, values = USERS, [b"a", b"b", b"c", b"d"], [row_value(n, "text" * n) for n in range(4)]
    else:
        found, (keys, values) = COUNTS, states(30)
    at = draw.randrange(len(keys))
    damaged = bytearray(values[at])
    for _ in range(draw.randrange(1, 4)):
        match draw.randrange(3):
            case 0:
                damaged[draw.randrange(len(damaged))] = draw.randrange(256)
            case 1:
                del damaged[draw.randrange(len(damaged)) :]
                damaged = damaged or bytearray(b"\x00")
            case 2:
                damaged += draw.randbytes(draw.randrange(1, 9))
    values[at] = bytes(damaged)
    log = Log([record(key, value) for key, value in zip(keys, values, strict=True)])
    try:
        assert len(read(log, found)) == len(keys)
    except SerializationException as error:
        assert f"topic 'app-users-changelog', partition 3, offset {at}:" in str(error)  # noqa: PT017 - either is right


def store_of(log):
    return Store("users", AT.topic, (Span(AT, log.start, log.end),))


def test_the_newest_description_is_found_however_far_back():
    old, new = table_step([("k", pa.string())], [], ROW, NEWEST_ROWS), USERS
    filler = [record(b"k%d" % index, b"x") for index in range(3000)]
    log = Log([(SCHEMA_KEY, describe_store(old)), *filler, (SCHEMA_KEY, describe_store(new)), *filler])
    assert description(log, store_of(log)).layout.keys.names == ["user"]
    log = Log([(SCHEMA_KEY, describe_store(old)), *filler], start=9)
    assert description(log, store_of(log)).layout.keys.names == ["k"]
    assert description(log, Store("users", AT.topic, (Span(AT, 10, log.end),))) is None
    assert description(log, Store("users", AT.topic, (Span(AT, 10, 10),))) is None


class Cutting:
    """A cluster whose log is cut right behind each look at it, so often."""

    def __init__(self, log, cuts):
        self.log, self.cuts = log, cuts

    def partitions(self, topics):
        return {topic: [AT] for topic in topics}

    def spans(self, partitions):
        found = [Span(partition, self.log.start, self.log.end) for partition in partitions]
        if self.cuts:
            self.cuts -= 1
            self.log.start += 1
        return found


@pytest.mark.parametrize("cuts", [0, 1, 4])
def test_a_description_is_looked_for_again_where_the_changelog_was_cut(cuts):
    filler = [record(b"k%d" % index, b"x") for index in range(10)]
    log = Log([*filler, (SCHEMA_KEY, describe_store(USERS))])
    reader = TableReader(Cutting(log, cuts), log, "app")
    store, found = reader.described(*reader.with_offsets({"users": AT.topic}))
    assert found.layout.keys.names == ["user"]
    assert store.spans == (Span(AT, cuts, log.end),)


def test_a_changelog_that_is_cut_all_the_time_is_given_up():
    log = Log([record(b"k%d" % index, b"x") for index in range(99)])
    reader = TableReader(Cutting(log, 99), log, "app")
    (store,) = reader.with_offsets({"users": AT.topic})
    with pytest.raises(OffsetOutOfRangeException):
        reader.described(store)


def test_a_description_that_is_damaged_is_named():
    log = Log([(SCHEMA_KEY, b"{}")], start=4)
    with pytest.raises(
        SerializationException, match="topic 'app-users-changelog', partition 3, offset 4 is not a valid"
    ):
        description(log, store_of(log))


WINDOW = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
COLLECTED = (
    AggregateSpec("collect_set", "a0", pa.string(), pa.list_(pa.string()), "set"),
    AggregateSpec("collect_list", "a1", pa.int64(), pa.list_(pa.int64()), "list"),
    AggregateSpec("count", "a2", pa.string(), pa.int64(), "distinct", distinct=True),
    AggregateSpec("percentile", "a3", pa.float64(), pa.float64(), "median", options=((0.5,), False, False)),
    NEWEST,
)
LISTS = [(a.result, a.result_type) for a in COLLECTED[:-1]]
WINDOWED = [("window", WINDOW), ("user", pa.string())]
USER = [("user", pa.string())]
RANKING = RowRanking("place", (("n", True, False),), 3)
SHAPES = {
    "collected": state_spec(USER, [], LISTS, COLLECTED),
    "collected in windows": table_step(WINDOWED, [], LISTS, aggregates_of(COLLECTED), window="window"),
    "windows": table_step(WINDOWED, [], [], aggregates_of((NEWEST,)), window="window"),
    "sessions": table_step(WINDOWED, [], [], sessions_of((NEWEST,)), window="window"),
    "history": table_step(USER, [], ROW, history_of(5)),
    "places": table_step([*USER, ("place", pa.int32())], [], ROW, places_of(RANKING)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_bytes_that_anybody_wrote_are_rows_or_named(shape):
    for seed in range(150):
        draw, records = random.Random(seed), []
        for _ in range(draw.randrange(1, 6)):
            parts = [b"\x80" + b"\x00" * 7, b"\x00", b"\x01", b"\x02", b"\x00\x00\x00\x03", b"ada", b"\x00\x03"]
            key = b"".join(
                draw.choice([*parts, draw.randbytes(draw.randrange(9))]) for _ in range(draw.randrange(1, 6))
            )
            value = draw.choice([b"", b"\x01", b"\x02", (3).to_bytes(8, "little")]) + draw.randbytes(draw.randrange(40))
            records.append(record(key, value))
        try:
            read(Log(records), SHAPES[shape])
        except SerializationException as error:
            assert "topic 'app-users-changelog', partition 3, offset " in str(error)  # noqa: PT017 - either is right
