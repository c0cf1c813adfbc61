import pytest
from bench.availability_tables import availability_table
from bench.gaps import longest_gap
from bench.member import hand_overs


@pytest.mark.parametrize(
    ("arrivals", "gap"),
    [
        ([1.0, 2.0, 4.5, 5.0, 9.0], 4.0),
        # Silence at the edges counts with what of it lies inside.
        ([9.0], 9.0),
        ([1.0], 9.0),
        ([], 10.0),
        ([-5.0, 1.0, 2.0, 9.5, 30.0], 7.5),
        ([0.0, 5.0, 5.0, 10.0], 5.0),
    ],
)
def test_longest_gap_between_two_moments(arrivals, gap):
    assert longest_gap(arrivals, 0.0, 10.0) == gap


def place(active=(), standby=None):
    return {"": {"active": list(active), "restoring": {}, "standby": standby or {}}}


def test_a_hand_over_lasts_from_the_warm_copy_to_the_active_task():
    history = [
        (1.0, {}),
        (2.0, place(standby={"0": None, "1": 50_000})),
        (3.0, place(standby={"0": 9_000, "1": 50_000, "2": 0})),
        (4.0, place(standby={"0": 10, "1": 10_000, "2": 0})),
        (5.0, place(active=[0], standby={"1": 0, "2": 0})),
        (7.0, place(active=[0, 1, 3], standby={"2": 0})),
    ]
    # Task 2 is a copy that stays one; task 3 was never warmed up here.
    assert hand_overs(history, 10_000) == {0: 2.0, 1: 3.0}


def test_table_shows_medians_and_what_failed():
    runs = [
        {"scenario": "kill", "system": "SparkRelay", "keys": 1000, "gap_s": gap, "other_gap_s": 0.1,
         "gap_before_s": 0.1, "p99_ms": 9000, "exact": True}
        for gap in (10.5, 11.25, 30.0)
    ]  # fmt: skip
    runs.append({"scenario": "stop", "system": "SparkRelay", "keys": 1000, "failed": "not in time"})
    runs.append({"scenario": "restore", "system": "SparkRelay", "keys": 1000, "restored_per_s": 1_250_000})
    names = ("cores", "cpu", "memory_gb", "load_average", "sparkrelay", "spark", "kafka", "python", "java")
    machine = dict.fromkeys(names, "?")
    shown = availability_table(machine, runs)
    for expected in ("11.25", "9000", "FAILED: not in time", "1,250,000/s"):
        assert expected in shown
    assert "30.00" not in shown
