import pytest
from bench.drain import rates, ratios
from bench.driver_instance import check
from bench.expiry import cost_percent
from bench.latency import above
from bench.parts import PARTS, RELAY_ONLY
from bench.start import median_start
from bench.tables import _PARTS, tables

MACHINE = dict.fromkeys(
    ("cores", "cpu", "memory_gb", "load_average", "sparkrelay", "spark", "spark_kafka_connector", "kafka", "python",
     "java", "pyarrow"), "?",
)  # fmt: skip


def batch(rows, began, ended):
    return {"rows": rows, "began": began, "ended": ended, "cpu_s": ended / 2}


def test_first_pass_is_cold_and_the_rest_is_warm_gaps_included():
    batches = [batch(100, 10.0, 14.0), batch(100, 15.0, 16.0), batch(100, 16.5, 17.0)]
    got = rates(batches, 100)
    assert (got["cold_rps"], got["cold_s"]) == (25, 4.0)
    assert (got["warm_rps"], got["warm_s"]) == (round(200 / 3), 3.0)
    assert got["warm_records_per_cpu_s"] == round(200 / 1.5)


def test_cold_pass_of_several_batches_ends_with_the_batch_that_completes_it():
    batches = [batch(40, 0.0, 2.0), batch(60, 2.0, 4.0), batch(50, 4.0, 5.0), batch(50, 5.0, 6.0)]
    got = rates(batches, 100)
    assert (got["cold_rps"], got["warm_rps"], got["batches"]) == (25, 50, 4)


def test_one_pass_has_no_warm_rate():
    assert "warm_rps" not in rates([batch(100, 0.0, 1.0)], 100)


def test_ratios_compare_like_with_like_and_warm_with_cold():
    got = ratios({"cold_rps": 300, "warm_rps": 900}, {"cold_rps": 100, "warm_rps": 150})
    assert got == {"cold_ratio": 3.0, "warm_ratio": 6.0, "warm_to_cold_ratio": 9.0}


def test_ratios_without_a_peer_are_left_out():
    assert set(ratios({"cold_rps": 1, "warm_rps": 1}, None).values()) == {None}


def test_the_cost_of_ending_windows_is_the_median_of_rounds():
    ending, staying = ([{"warm_rps": rate} for rate in rates] for rates in ((95, 100, 48), (100, 90, 50)))
    assert cost_percent(ending, staying, "warm_rps") == 4.0


def test_a_query_is_compared_with_the_run_beside_it():
    runs, base = ([{"p50_ms": p, "p99_ms": p * 2} for p in times] for times in ((14.0, 30.0, 10.0), (10.0, 29.0, 12.0)))
    assert above(runs, base) == {"p50_above_ms": 1.0, "p99_above_ms": 2.0}


def test_every_part_has_a_table():
    assert set(_PARTS) == set(PARTS)
    assert set(RELAY_ONLY) < set(PARTS)


def test_steps_of_the_test_driver_must_be_exact():
    window = {"user": "u000001", "start": 1_767_225_600_000, "orders": 10, "total": 10.0}
    check("windows", [window], 25)
    for rows in ([], [window, window], [{**window, "orders": 9}]):
        with pytest.raises(ValueError, match="windows is not exact: "):
            check("windows", rows, 25)


def test_median_start_keeps_the_phases_that_every_run_had():
    runs = [
        {"to_output_s": 7.0, "cpu_s": 12.0, "phases": {"imported": 1.0, "live": 6.5}},
        {"to_output_s": 9.0, "cpu_s": 11.0, "phases": {"imported": 2.0}},
    ]
    assert median_start(runs) == {"to_output_s": 8.0, "cpu_s": 11.5, "phases": {"imported": 1.5}}


@pytest.mark.parametrize("ratio", [None, 2.04])
def test_tables_show_each_part_that_ran(ratio):
    drained = {
        "bench": "drain", "variant": "SparkRelay, 2 M a batch", "runs": 3, "cold_rps": 300_000, "warm_rps": 900_000,
        "cold_ratio": ratio, "warm_ratio": ratio, "warm_to_cold_ratio": ratio, "to_first_batch_s": 4.2,
        "warm_records_per_cpu_s": 512_000, "to_exactly_once": ratio, "to_at_least_once": ratio,
    }  # fmt: skip
    late = {
        "bench": "latency",
        "variant": "SparkRelay",
        "query": "totals",
        "rate": 1000,
        "runs": 1,
        "busy_cores": 0.5,
        "partitions": 4,
        "instances": 1,
    }
    late |= {"p50_ms": 40.0, "p99_ms": 80.0, "max_ms": 91.0, "batch_p50_ms": 30.0}
    unbatched = {**late, "variant": "Kafka Streams", "p99_ms": 77.0}
    del unbatched["batch_p50_ms"]
    idle = {"when": "after the work", "idle_core_percent": 2.5, "idle_jobs": 0, "idle_seconds": 60.0}
    steady = {
        "bench": "steady", "variant": "SparkRelay", "minutes": [2.0, 12.0],
        "memory_mb": [{"jvm_rss": 500.0}, {"jvm_rss": 510.0}],
        "growth_mb": {"jvm_rss": 10.0}, "heap_mb": [None, None], "idle": [idle],
    }  # fmt: skip
    state = {
        "bench": "state", "variant": "SparkRelay", "keys": 10_000_000, "runs": 1, "warm_rps": 333_000,
        "to_exactly_once": ratio, "to_few_keys": 0.35, "warm_records_per_cpu_s": 222_000, "restored_per_s": 1_234_000,
        "disk_mb": 5_432, "memory_mb": {"driver": [300, 200], "jvm": [1400, 1300], "workers": [2000, 1111]},
    }  # fmt: skip
    started = {"bench": "start", "variant": "SparkRelay", "runs": 3, "to_output_s": 6.6, "cpu_s": 13.3}
    started["phases"] = {"imported": 1.4, "spark": 4.5}
    looked_up = {**drained, "bench": "lookup", "warm_rps": 777_000}
    above_it = {**late, "query": "lookup", "p50_above_ms": 3.3, "p99_above_ms": -1.2}
    ended = {"bench": "expiry", "variant": "SparkRelay", "runs": 3, "warm_rps": 654_000}
    ended |= {"warm_records_per_cpu_s": 321_000, "cost_percent": 4.4, "cpu_cost_percent": -0.7}
    flat = {"bench": "flat", "variant": "SparkRelay", "keys": 100_000, "windows": 12}
    for size in ("rows", "bytes", "changelog"):
        flat |= {f"{size}_min": 1000, f"{size}_max": 1098, f"{size}_spread_percent": 9.8}
    stepped = {"bench": "driver", "query": "windows", "runs": 1, "steps": 500}
    stepped |= {"first_s": 1.5, "p50_s": 0.031, "p99_s": 0.049, "max_s": 0.123}
    wide = {"bench": "wide", "records": "random", "query": "passed on", "runs": 1, "backlog_mb": 1200, "pss_mb": 1347}
    wide |= {
        "roles_mb": {"driver": 167, "jvm": 396, "workers": 784},
        "batches": 11,
        "largest_batch": 5660,
        "seconds": 9.6,
    }
    results = [drained, late, unbatched, above_it, started, steady, state, looked_up, ended, flat, wide, stepped]
    shown = tables(MACHINE, results)
    for expected in ("while 1,200 MB are drained", "passed on", "1,347", "167", "396", "784", "5,660"):
        assert expected in shown
    for expected in ("777", "SparkRelay: lookup", "+3.3", "-1.2", "654", "4.4 %", "-0.7 %", "1,098", "9.8 %", "0.049"):
        assert expected in shown
    for expected in (
        "6.6",
        "13.3",
        "imported",
        "4.5",
        "10,000,000",
        "333",
        "0.35",
        "222",
        "1234",
        "5,432",
        "200 / 1,300 / 1,111",
    ):
        assert expected in shown
    for expected in ("900", "512", "SparkRelay, 2 M a batch", "80", "77", "+10.0", "after the work", "minute 12"):
        assert expected in shown
    assert ("2.0" in shown) == (ratio is not None)
