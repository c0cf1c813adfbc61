"""The Grafana dashboard and the alert rules name only metrics, labels and states that an instance has."""

import json
import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sparkrelay.observe.exposition import InstanceCollector

ROOT = Path(__file__).parents[3]
DASHBOARD = json.loads((ROOT / "ops" / "grafana.json").read_text())
ALERTS = (ROOT / "ops" / "alerts.yaml").read_text()
PAGE = (ROOT / "docs" / "watching.md").read_text()
#: What Prometheus adds to each series.
ADDED = {"instance", "job"}
_STATES = re.compile(r'sparkrelay_state\{state=~?"([A-Z_|]+)"')


@pytest.fixture
def existing(busy):
    """Name of each sample -> its labels."""
    registry = CollectorRegistry()
    registry.register(InstanceCollector(lambda: busy))
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        if family.type == "counter":
            found[f"{family.name}_total"] = set()  # also where nothing is counted yet
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def expressions():
    """Return each expression of both files."""
    queries = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    variables = [one["query"]["query"] for one in DASHBOARD["templating"]["list"] if isinstance(one["query"], dict)]
    return [*queries, *variables, *re.findall(r"^ +expr: (.*)$", ALERTS, re.MULTILINE)]


def test_there_are_some():
    assert len(DASHBOARD["panels"]) > 15
    assert ALERTS.count("- alert:") == ALERTS.count("summary:") == ALERTS.count("severity:") == 12
    assert len(expressions()) > 30


def test_every_metric_exists(existing):
    for expression in expressions():
        names = re.findall(r"\bsparkrelay_\w+", expression)
        assert set(names) <= set(existing), expression
        for name, selector in re.findall(r"\b(sparkrelay_\w+)\{([^}]*)\}", expression):
            labels = set(re.findall(r"(\w+)(?:=~|!~|!=|=)", selector))
            assert labels <= existing[name], expression
        for states in _STATES.findall(expression):
            known = set(re.findall(r"^\| `([A-Z_]+)` \|", PAGE, re.MULTILINE))
            assert set(states.split("|")) <= known


def test_legends_and_summaries_name_labels_that_are_there(existing):
    labels = set().union(*existing.values()) | ADDED
    legends = " ".join(target["legendFormat"] for panel in DASHBOARD["panels"] for target in panel["targets"])
    assert set(re.findall(r"\{\{(\w+)\}\}", legends)) <= labels
    assert set(re.findall(r"\$labels\.(\w+)", ALERTS)) <= labels


def test_panels_do_not_lie_upon_each_other():
    taken = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_every_metric_of_the_page_is_on_the_dashboard(existing):
    shown = " ".join(expressions())
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in existing if not name.endswith("_created")}
    assert {name for name in families if name not in shown} == set()
