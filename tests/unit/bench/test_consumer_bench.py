import numpy as np
import pyarrow as pa
import pytest
from bench.children import BenchError
from bench.consumer_data import VALUE_BYTES, values
from bench.consumer_parts import java_figures, percentiles, ratios
from bench.consumer_tables import consumer_tables

MACHINE = dict.fromkeys(
    ("cores", "cpu", "memory_gb", "load_average", "sparkrelay", "kafka", "python", "java", "pyarrow"), "?"
) | {"confluent-kafka": "2.16.1"}
JAVA = (
    "2026-11-21 18:13:32:471, 2026-11-21 18:13:36:113, 190.7, 52.4, 2000000, 549148.8, 2310, 1332, 143.2, 1501501.5\n"
)


def test_values_are_of_the_same_length_and_not_the_same():
    made = values(1000)
    assert set(pa.compute.binary_length(made).to_pylist()) == {VALUE_BYTES}
    assert len(made.unique()) == 1000
    assert made.equals(values(1000))
    assert not made.equals(values(1000, first=1000))


def test_javas_figures_are_those_of_its_time_of_fetching():
    assert java_figures(f"[main] INFO something\n{JAVA}", 2_000_000) == {"rps": 1_501_502, "seconds": 1.332}


@pytest.mark.parametrize(("text", "says"), [("", "no figures"), ("a, b\n", "no figures"), (JAVA, "read 2000000 of")])
def test_a_java_that_read_too_little_is_an_error(text, says):
    with pytest.raises(BenchError, match=says):
        java_figures(text, 2_000_001)


def test_ratios_compare_the_whole_with_java_and_the_rest_with_confluent():
    ours = {"rps": 3000, "steady_rps": 4000}
    others = {"SparkRelay": ours, "confluent-kafka": {"rps": 400, "steady_rps": 800}, "Java": {"rps": 1000}}
    assert ratios(ours, others) == {"to_confluent-kafka": 5.0, "to_Java": 3.0}
    assert ratios(others["Java"], others) == {"to_Java": 1.0}
    assert ratios(ours, {"SparkRelay": ours}) == {}


def test_percentiles_are_in_milliseconds():
    got = percentiles(np.arange(1, 101) / 1000)
    assert (got["p50_ms"], got["max_ms"]) == (50.5, 100)


def test_tables_show_each_part_that_ran():
    drained = {"bench": "drain", "codec": "zstd", "system": "SparkRelay", "runs": 3, "rps": 3_000_000}
    drained |= {"steady_rps": 4_000_000, "records_per_cpu_s": 5_000_000, "to_confluent-kafka": 4.25, "to_Java": 2.5}
    java = {"bench": "drain", "codec": "zstd", "system": "Java", "runs": 3, "rps": 1_200_000}
    late = {"bench": "latency", "system": "aiokafka", "runs": 3, "p50_ms": 2.25, "p99_ms": 7.5, "max_ms": 9.0}
    idle = {"bench": "idle", "system": "SparkRelay", "members": 1, "core_percent": 0.47, "rss_mb": 89.0}
    crowd = [
        {"bench": "crowd", "system": "SparkRelay", "members": 100, "core_percent": 7.48, "rss_mb": 109.0},
        {"bench": "crowd", "system": "confluent-kafka", "members": 100, "failed": "too many threads"},
    ]
    moved = {"bench": "rebalance", "callback_s": 30.0, "heartbeats_in_callback": 10, "longest_heartbeat_gap_s": 3.01}
    moved |= {"lost": 0, "others_longest_pause_s": 0.28}
    shown = consumer_tables(MACHINE, [drained, java, late, idle, *crowd, moved])
    for expected in (
        "4000",
        "4.25",
        "2.50",
        "1200",
        "7.50",
        "0.47",
        "7.48",
        "failed",
        "3.01",
        "0.28",
        "2.16.1",
        "100 idle",
    ):
        assert expected in shown
