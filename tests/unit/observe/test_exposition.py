"""An instance's numbers in Prometheus's own words, read back by its own parser."""

import re
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sparkrelay.observe.exposition import InstanceCollector

PAGE = Path(__file__).parents[3] / "docs" / "watching.md"


def scraped(snapshot):
    registry = CollectorRegistry()
    registry.register(InstanceCollector(lambda: snapshot))
    samples = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        assert family.documentation.endswith(".")
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            assert key not in samples, "each series comes once"
            samples[key] = sample.value
    return samples


def test_an_instance_that_does_nothing(snapshot):
    samples = scraped(snapshot(state="REBALANCING"))
    states = {key[1][1]: value for key, value in samples.items() if key[0] == "sparkrelay_state"}
    assert states.pop("REBALANCING") == 1
    assert set(states.values()) == {0}
    assert samples["sparkrelay_batches_total",] == 0
    assert samples["sparkrelay_batch_seconds_count",] == 0
    assert samples["sparkrelay_instance_info", ("application_id", "app")] == 1
    assert {key[1][1] for key in samples if key[0] == "sparkrelay_errors_total"} == {
        "batch",
        "broker",
        "state",
        "thread",
    }


def test_tasks(busy):
    samples = scraped(busy)
    assert (
        samples["sparkrelay_task_lag", ("partition", "0"), ("process", "p"), ("task", "0_0"), ("topic", "orders")] == 40
    )
    assert [key for key in samples if key[0] == "sparkrelay_task_lag" and ("task", "0_1") in key] == []
    assert samples["sparkrelay_restore_remaining", ("process", "p"), ("task", "0_2")] == 4321
    assert ("sparkrelay_restore_remaining", ("process", "p"), ("task", "0_3")) not in samples
    assert samples["sparkrelay_restore_start_timestamp_seconds", ("process", "p"), ("task", "0_3")] == 1767323045
    assert samples["sparkrelay_standby_lag", ("process", "p"), ("task", "0_4")] == 12
    tasks = {key[1][1]: value for key, value in samples.items() if key[0] == "sparkrelay_tasks"}
    assert tasks == {"created": 0, "restoring": 2, "running": 2, "standby": 1}


def test_totals(busy):
    samples = scraped(busy)
    assert samples["sparkrelay_batches_total",] == 2
    assert samples["sparkrelay_batch_seconds_sum",] == 99.2
    assert samples["sparkrelay_batch_seconds_bucket", ("le", "0.1")] == 0
    assert samples["sparkrelay_batch_seconds_bucket", ("le", "0.25")] == 1
    assert samples["sparkrelay_batch_seconds_bucket", ("le", "60.0")] == 1
    assert samples["sparkrelay_batch_seconds_bucket", ("le", "+Inf")] == 2
    assert samples["sparkrelay_commit_seconds_count",] == 1
    assert samples["sparkrelay_records_total", ("topic", "orders")] == 90
    assert samples["sparkrelay_rows_written_total",] == 7
    assert samples["sparkrelay_lost_records_total", ("topic", "orders")] == 40
    assert samples["sparkrelay_late_rows_total", ("store", "windows")] == 3
    assert samples["sparkrelay_late_rows_total", ("store", "joined")] == 0, "so that the first late row is an increase"
    assert samples["sparkrelay_replayed_records_total",] == 1234
    assert samples["sparkrelay_rebalances_total",] == 1
    assert samples["sparkrelay_rebalance_seconds_sum",] == 1.5
    assert samples["sparkrelay_task_reopens_total",] == 1
    assert samples["sparkrelay_errors_total", ("where", "batch")] == 1
    assert samples["sparkrelay_errors_total", ("where", "broker")] == 1
    assert samples["sparkrelay_last_batch_timestamp_seconds",] == 1_700_000_001.5


def test_the_page_has_every_metric_and_no_other(busy):
    registry = CollectorRegistry()
    registry.register(InstanceCollector(lambda: busy))
    kinds = {
        "counter": lambda name: f"{name}_total",
        "info": lambda name: f"{name}_info",
    }
    names = {kinds.get(family.type, str)(family.name) for family in registry.collect()}
    documented = re.findall(r"^\| `(sparkrelay_\w+)(?:\{.*\})?` \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(documented) == sorted(names)
