from collections import defaultdict

import pyarrow as pa
from bench import joins
from bench.joins import WITHIN_S, JoinWorkload, found_pairs

SMALL = JoinWorkload(records=400, keys=40, passes=2, ends=1_767_225_600)


def test_expected_pairs_are_those_that_looking_at_each_one_finds():
    records = [
        (user, quarter / 4, time)
        for number in range(SMALL.passes)
        for (users, quarters, _), times in zip(SMALL.columns(), SMALL._times(number), strict=True)
        for user, quarter, time in zip(users.to_pylist(), quarters.tolist(), times.tolist(), strict=True)
    ]
    pairs, sums = defaultdict(int), defaultdict(float)
    for user, amount, time in records:
        near = sum(user == other and abs(answered + 1 - time) <= WITHIN_S for other, _, answered in records)
        assert near >= 1
        pairs[user] += near
        sums[user] += near * amount
    assert SMALL.expected() == {user: (pairs[user], sums[user]) for user in pairs}
    assert SMALL.taken == 1600


def test_found_pairs_are_counted_by_user(monkeypatch):
    rows = pa.table({"user": ["a", "b", "a"], "amount": [1.0, 2.5, 4.0]}, schema=joins._ROWS)
    monkeypatch.setattr(joins, "read_rows", lambda *_: iter([rows]))
    assert found_pairs("", "sink") == ({"a": (2, 5.0), "b": (1, 2.5)}, 3)
