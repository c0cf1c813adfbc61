import json
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from bench import windows
from bench.windows import DELAY_S, WINDOW_S, WindowWorkload, found_windows
from bench.workload import PARTITIONS, json_values

SMALL = WindowWorkload(records=4000, keys=100, passes=2, ends=1_767_225_600)


def records():
    """Every record as it is written, by partition, those that close windows last."""
    parts = [[] for _ in range(PARTITIONS)]
    for number in range(SMALL.passes):
        passed = zip(SMALL.columns(), SMALL._times(number), strict=True)
        for partition, ((users, quarters, actions), times) in enumerate(passed):
            texts = json_values(users, quarters, actions, 0, times=times)
            parts[partition] += [json.loads(text) for text in texts.to_pylist()]
    users, quarters, _ = SMALL._closing_records()
    for partition, (user, quarter) in enumerate(zip(users.to_pylist(), quarters.tolist(), strict=True)):
        parts[partition].append(
            {"user": user, "amount": quarter / 4, "action": "buy", "time": SMALL._closing_time, "closes": True}
        )
    return parts


def totals(kept):
    expected = defaultdict(lambda: (0, 0.0))
    for record in kept:
        name = f"{record['user']}@{record['time'] // WINDOW_S * WINDOW_S * 1000}"
        orders, total = expected[name]
        expected[name] = (orders + 1, total + record["amount"])
    return dict(expected)


def test_expected_windows_are_those_of_the_json_that_is_written():
    kept = [record for part in records() for record in part if record["action"] != "view"]
    assert replace(SMALL, final=False).expected() == totals(kept)
    assert SMALL.expected() == totals(record for record in kept if "closes" not in record)


def test_no_record_is_late_and_the_last_ones_end_all_other_windows():
    for part in records():
        newest = 0
        for record in part:
            assert record["time"] // WINDOW_S * WINDOW_S + WINDOW_S > newest - DELAY_S
            newest = max(newest, record["time"])
        assert part[-1]["time"] == newest
        assert all(record["time"] + WINDOW_S <= newest - DELAY_S for record in part[:-1])


def test_windows_end_all_the_time():
    times = np.concatenate([np.concatenate(list(SMALL._times(number))) for number in range(SMALL.passes)])
    assert len(set((times // WINDOW_S).tolist())) in {20, 21}
    assert times.max() < SMALL.ends


@pytest.mark.parametrize(("final", "orders"), [(True, 5), (False, 3)])
def test_final_rows_of_one_window_add_up_where_of_updates_the_last_counts(monkeypatch, final, orders):
    rows = [{"user": "u000001", "start": 10_000, "orders": n, "total": n / 4} for n in (2, 3)]
    table = pa.Table.from_pylist(rows, schema=windows._ROWS)
    monkeypatch.setattr(windows, "read_rows", lambda *_: iter([table.slice(0, 1), table.slice(1)]))
    found, count = found_windows("b:1", "sink", final=final)
    assert found == {"u000001@10000": (orders, orders / 4)}
    assert count == 2
