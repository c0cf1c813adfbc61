"""The first rows of each key of a table whose rows change, beside sorting those that there are."""

import random

import pyarrow as pa
import pytest
from tests.unit.operators.store_specs import WITHOUT_KAFKA

from sparkrelay import hidden_columns
from sparkrelay.operators.ranking.layout import RowsBesideLayout
from sparkrelay.operators.ranking.row_order import RowRanking
from sparkrelay.operators.ranking.tables import RankedTableRunner, TaskRankings
from sparkrelay.operators.table.changes import CHANGES, NEW, OLD
from sparkrelay.state import BatchStamp, TaskStore
from sparkrelay.types import TopicPartition

TOPIC = TopicPartition("t", 0)
ROW = pa.schema([("price", pa.int64()), ("name", pa.string())])
HIDDEN = [(hidden_columns.PARTITION, pa.int32()), (hidden_columns.TIMESTAMP, pa.int64())]
INPUT = pa.schema([("k", pa.string()), ("n", pa.int32()), *ROW, *HIDDEN, (hidden_columns.CHANGE, pa.int32())])
OUTPUT = pa.schema(
    [
        *(("k", pa.string()), ("n", pa.int32()), *ROW, *HIDDEN, (hidden_columns.KEY, pa.binary())),
        (hidden_columns.TOMBSTONE, pa.bool_()),
    ]
)
KEPT = pa.schema([*list(OUTPUT)[:-1], pa.field(hidden_columns.CHANGE, pa.int32())])


def spec_of(count, *, descending):
    layout = RowsBesideLayout(
        store="s",
        keys=pa.schema([("k", pa.string()), ("n", pa.int32())]),
        row=ROW,
        ranking=RowRanking("n", (("price", descending, False),), count),
    )
    return RankedTableRunner(
        **WITHOUT_KAFKA,
        leg="leg",
        topics=("t",),
        store="s",
        contents="rows",
        layout=layout,
        input=INPUT,
        output=OUTPUT,
        kept=KEPT,
    )


class Table:
    """A table of rows by id, its changes, and the first rows as the step says them."""

    def __init__(self, path, spec):
        self.spec = spec
        self.store = TaskStore.open(path)
        self.rows, self.shown, self.changes, self.number = {}, {}, [], 0

    def put(self, id_, row):
        before = self.rows.get(id_)
        for kind, one in ((OLD, before), (NEW, row)):
            if one is not None:
                self.changes.append((*one, self.number, kind))
        self.rows[id_] = row

    def run(self):
        """Take the changes as a micro-batch; follow what goes on, and return what other legs find."""
        columns = ("k", "price", "name", hidden_columns.TIMESTAMP, hidden_columns.CHANGE)
        rows = [
            {"n": 1, hidden_columns.PARTITION: 0, **dict(zip(columns, change, strict=True))} for change in self.changes
        ]
        self.changes.clear()
        step = TaskRankings(self.spec, 0, pa.Table.from_pylist(rows, INPUT))
        span = (self.number, self.number + 1)
        stamp = BatchStamp(0, self.number + 1, self.number, {TOPIC: span}, {TOPIC: self.number}, contents="rows")
        found = {}

        def operate(view):
            changes = step.operate(view)
            found.update(changes.beside)
            return changes

        applied = self.store.change_batch("leg", "s", batch=stamp, operate=operate)
        self.number += 1
        for row in applied.emitted.to_pylist():
            at = (row["k"], row["n"])
            if row[hidden_columns.TOMBSTONE]:
                assert self.shown.pop(at) == (row["price"], row["name"])
            else:
                assert self.shown.get(at) != (row["price"], row["name"])
                self.shown[at] = (row["price"], row["name"])
        return found[CHANGES].to_pylist()


@pytest.mark.parametrize("seed", range(6))
def test_places_are_those_of_the_rows_that_there_are(tmp_path, seed):
    draw = random.Random(seed)
    count, descending = draw.randint(1, 3), draw.random() < 0.5
    table = Table(tmp_path / "0_0", spec_of(count, descending=descending))
    before = {}
    for _ in range(25):
        for _ in range(draw.randrange(6)):
            row = (draw.choice("ab"), draw.choice([None, *range(4)]), draw.choice("xy"))
            table.put(draw.randrange(9), None if draw.random() < 0.3 else row)
        changes = table.run()
        held = [row for row in table.rows.values() if row is not None]
        for key in "ab":
            places = [table.shown[key, n] for n in range(1, count + 1) if (key, n) in table.shown]
            wanted = sorted(
                (row[1:] for row in held if row[0] == key),
                key=lambda row: (row[0] is None, 0 if row[0] is None else -row[0] if descending else row[0]),
            )
            assert [price for price, _ in places] == [price for price, _ in wanted[:count]]
            assert all(wanted.count(place) >= places.count(place) for place in places), "each of them is there"
            assert (key, len(places) + 1) not in table.shown
        old, new = (
            {(row["k"], row["n"]): (row["price"], row["name"]) for row in changes if row[hidden_columns.CHANGE] == kind}
            for kind in (OLD, NEW)
        )
        assert old == {at: before[at] for at in old}
        assert {**{at: row for at, row in before.items() if at not in old}, **new} == table.shown
        before = dict(table.shown)
    # What is no more leaves nothing behind.
    for id_ in list(table.rows):
        table.put(id_, None)
    table.run()
    assert table.shown == {}
    assert sum(batch.num_rows for batch in table.store.scan("s")) == 0
    table.store.close(clean=False)
