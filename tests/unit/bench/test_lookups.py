import json
from collections import Counter

import pyarrow as pa
import pytest
from bench import lookups
from bench.children import BenchError
from bench.lookups import LookupWorkload, found_rows, table_values

SMALL = LookupWorkload(records=4000, keys=100, passes=2)
HELD = {
    user: json.loads(text)
    for names in SMALL.users()
    for user, text in zip(names.to_pylist(), table_values(names).to_pylist(), strict=True)
}


@pytest.fixture
def written(monkeypatch):
    """`written(rows)` has the sink hold these rows."""

    def write(rows):
        table = pa.Table.from_pylist(rows, schema=lookups._ROWS)
        monkeypatch.setattr(lookups, "read_rows", lambda *_: iter([table.slice(0, 3), table.slice(3)]))

    return write


def joined():
    return [
        {"user": user, "amount": quarter / 4, "country": HELD[user]["country"], "points": HELD[user]["points"]}
        for users, quarters, _ in SMALL.columns()
        for user, quarter in zip(users.to_pylist(), quarters.tolist(), strict=True)
    ] * SMALL.passes


def test_the_table_has_a_row_for_every_user():
    assert len(HELD) == 100
    assert HELD["u000042"] == {"name": "name of u000042", "country": "C42", "points": 332_598}


def test_every_record_is_expected_once_whatever_its_action():
    rows = joined()
    counts = Counter(row["user"] for row in rows)
    sums = Counter()
    for row in rows:
        sums[row["user"]] += row["amount"]
    assert SMALL.expected() == {user: (count, sums[user]) for user, count in counts.items()}


def test_what_lookups_must_write_is_found_as_expected(written):
    written(joined())
    assert found_rows("b:1", "sink") == (SMALL.expected(), 8000)


def test_a_row_too_many_and_a_row_too_few_are_found(written):
    rows = joined()
    for wrong in ([*rows, rows[0]], rows[1:]):
        written(wrong)
        assert found_rows("b:1", "sink")[0] != SMALL.expected()


@pytest.mark.parametrize("wrong", [{"points": 1}, {"country": "C0"}, {"points": None}])
def test_a_row_of_something_else_is_refused(written, wrong):
    rows = joined()
    rows[5] = {**rows[5], "user": "u000042", **wrong}
    written(rows)
    with pytest.raises(BenchError, match="1 rows in sink do not say what the table holds"):
        found_rows("b:1", "sink")
