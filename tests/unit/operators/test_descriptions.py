"""What changelogs say of their stores: all that reading the rows takes, and nothing of a cluster."""

import json

import pyarrow as pa
import pytest
from tests.doubles.state_steps import (
    NEWEST_ROWS,
    aggregates_of,
    history_of,
    places_of,
    ranked_table_of,
    sessions_of,
    state_spec,
    table_step,
)

from sparkrelay import hidden_columns
from sparkrelay.errors import SerializationException
from sparkrelay.operators.aggregate.layout import SessionsLayout
from sparkrelay.operators.dedup.run import Deduplicate
from sparkrelay.operators.descriptions import read_description
from sparkrelay.operators.history.layout import HistoryLayout
from sparkrelay.operators.latest.layout import LatestLayout
from sparkrelay.operators.ranking.row_order import RowRanking
from sparkrelay.runtime.contract.store_descriptions import describe_store
from sparkrelay.state.aggregate import AggregateSpec

WINDOW = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
NEWEST = AggregateSpec("max", hidden_columns.TIMESTAMP, pa.int64(), pa.int64())
AGGREGATES = (
    AggregateSpec("avg", "a0", pa.decimal128(10, 2), pa.decimal128(14, 6), "mean"),
    AggregateSpec("listagg", "a1", pa.string(), pa.string(), "names", options=(b"\x00, ", False)),
    AggregateSpec("percentile", "a2", pa.float64(), pa.list_(pa.float64()), "p", options=((0.5, 0.9), True, False)),
    AggregateSpec("max_by", "a3", pa.int32(), pa.int32(), "x", (("a3_1", pa.date32()),), distinct=True, subtracts=True),
    NEWEST,
)
RESULTS = [
    ("mean", pa.decimal128(14, 6)),
    ("names", pa.string()),
    ("p", pa.list_(pa.field("element", pa.float64()))),
    ("x", pa.int32()),
]


def spec_of(**more):
    return state_spec([("window", WINDOW), ("k", pa.string())], [], RESULTS, AGGREGATES, **more)


def test_a_description_says_all_that_reading_takes():
    keys = [("window", WINDOW), ("k", pa.string())]
    spec = table_step(keys, [], RESULTS, sessions_of(AGGREGATES), window="window", by=("k", "window"))
    found = read_description(describe_store(spec), "it").layout
    assert (type(found), found.keys, found.row) == (SessionsLayout, spec.layout.keys, spec.layout.row)
    assert (found.aggregates, found.repartitioned_by) == (AGGREGATES, ("k", "window"))
    assert (found.window, found.sessions, found.of_changes, found.store) == ("window", True, False, "counts")


def test_tables_rankings_and_tables_of_changes_differ():
    row, key, place = pa.schema([("x", pa.int64())]), ("k", pa.string()), ("n", pa.int32())

    def described(*step):
        return read_description(describe_store(table_step(*step)), "it")

    assert described([key], [], row, history_of(7)).layout == HistoryLayout(
        store="counts", keys=pa.schema([key]), row=row, history_ms=7
    )
    assert type(described([key], [], row, NEWEST_ROWS).layout) is LatestLayout
    ranking = RowRanking("n", (("x", True, False),), 10)
    assert described([key, place], [], row, places_of(ranking)).layout.ranking == ranking
    counts = described([key], [], RESULTS[:1], aggregates_of((AGGREGATES[0], NEWEST), of_changes=True))
    assert counts.layout.of_changes
    found = described([key, place], [], row, ranked_table_of(ranking))
    assert (found.layout, found.why_not) == (None, "rows of each key, and not their places")


def test_stores_without_rows_say_what_they_hold():
    base = {name: getattr(spec_of(), name) for name in ("leg", "subtopology", "topics", "spark_partitions", "client")}
    keys = Deduplicate(
        **base,
        map_limit=0,
        failure_key=b"",
        store="seen",
        changelog="app-seen-changelog",
        contents="keys",
        compression="none",
        flush_seconds=1.0,
        output=pa.schema([]),
        delay_ms=0,
        ahead_ms=0,
        sources=(),
        own_sources=(),
        keys=("k",),
        input=pa.schema([]),
        within=False,
    )
    found = read_description(describe_store(keys), "it")
    assert (found.contents, found.layout, found.why_not) == ("keys", None, "the keys that a stream has had")


def test_what_is_too_long_says_only_that():
    wide = state_spec(
        [("k", pa.string())], [], [(f"c{'x' * 200}{index}", pa.int64()) for index in range(2000)], (NEWEST,)
    )
    data = describe_store(wide)
    assert len(data) < 300
    assert "the description would take" in read_description(data, "it").why_not


def test_nothing_of_the_cluster_is_said():
    spec = state_spec([("k", pa.string())], [], RESULTS[:1], AGGREGATES[:1])
    spec.client["sasl.password"] = "secret"
    assert b"secret" not in describe_store(spec)


def _changed(change):
    said = json.loads(describe_store(spec_of()))
    change(said)
    return json.dumps(said).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01\x02",
        b"[]",
        b"[" * 100_000,
        b"{}",
        _changed(lambda said: said.update(version=2)),
        _changed(lambda said: said.pop("key")),
        _changed(lambda said: said.update(key=7)),
        _changed(lambda said: said["value"]["fields"].append(said["value"]["fields"][0])),
        _changed(lambda said: said["aggregates"][0].update(result=["x"])),
        _changed(lambda said: said["aggregates"][0].update(options=[{"code": "x"}])),
        _changed(lambda said: said.update(window={"column": "no", "sessions": False})),
        _changed(lambda said: said.update(historyMs="soon")),
        _changed(lambda said: said.update(ranking={"number": "n"})),
    ],
)
def test_what_is_no_description_is_refused_by_name(data):
    with pytest.raises(SerializationException, match="topic 'x', partition 3, offset 7"):
        read_description(data, "topic 'x', partition 3, offset 7")
