import numpy as np
from bench.state import _ratios, _take


def test_the_last_row_of_a_user_counts():
    orders, totals = np.zeros(3, np.int64), np.zeros(3)
    rows = [
        b'{"user":"u000001","orders":1,"total":2.25}',
        b'{"user":"u000000","orders":4,"total":1.0}',
        b'{"user":"u000001","orders":2,"total":3.5,"note":"..."}',
    ]
    _take(rows[:2], orders, totals)
    _take(rows[2:], orders, totals)
    assert orders.tolist() == [4, 2, 0]
    assert totals.tolist() == [1.0, 3.5, 0.0]


def test_a_drain_is_compared_by_time_and_by_processor_time():
    base, figures = ({"warm_rps": a, "warm_records_per_cpu_s": b} for a, b in ((400, 100), (100, 50)))
    assert _ratios(figures, base, "to_few_keys") == {"to_few_keys": 0.25, "to_few_keys_by_cpu": 0.5}
    assert set(_ratios(figures, None, "to_exactly_once").values()) == {None}
