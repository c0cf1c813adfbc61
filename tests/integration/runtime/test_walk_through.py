"""The page that goes from a topic of Avro to a query and a DataFrame, as it stands there."""

import json
import re
import urllib.request
from pathlib import Path

import pytest
from tests.doubles.schema_registry import SchemaRegistryDouble
from tests.ports import own_port
from tests.waiting import LONG

from sparkrelay.cli import app as command_line

PAGE = (Path(__file__).parents[3] / "docs" / "walk-through.md").read_text()

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.mark.long
def test_the_walk_through(spark, kafka, make_topic, consumed, tmp_path, wait_until, capsys, application_id):
    topics = {name: make_topic(name, 2) for name in ("orders", "customers", "totals", "left-out", "typed")}
    text = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    for name, made in topics.items():
        # Each test has topics of its own.
        text = text.replace(f'"{name}"', f'"{made}"').replace(f"/{name}-value/", f"/{made}-value/")
    text = text.replace("orders-by-country", application_id).replace(f'name="{topics["totals"]}"', 'name="totals"')
    text = text.replace(f'name="{topics["customers"]}"', 'name="customers"')
    text = text.replace(f'"storeName", "{topics["totals"]}"', '"storeName", "totals"')
    names = {}
    exec(compile(text, "walk-through.md", "exec"), names)
    with SchemaRegistryDouble() as registry:
        names["register"](registry.url)
        me, kafka_at = f"127.0.0.1:{own_port()}", kafka.bootstrap_servers
        names["type_some"](kafka_at)
        reads = names["config"](kafka_at, registry.url, me) | {"state.dir": str(tmp_path / "state")}
        streams = names["run"](spark, names["pipeline"](reads), reads)
        try:
            writes = names["writer_config"](kafka_at, registry.url) | {"state.dir": str(tmp_path / "writer")}
            writing = names["run"](spark, names["writer"](), writes | {"application.id": f"{application_id}-typed"})
            try:
                wait_until(lambda: streams.state == writing.state == "RUNNING", lambda: streams.status)
                wait_until(lambda: _total(streams, "NL") == (2, 12.5), lambda: f"{streams.status} {writing.status}")
                wait_until(lambda: _total(streams, "?") == (1, 1.0), lambda: f"{streams.status} {writing.status}")
            finally:
                assert writing.stop(LONG)
            (line,) = re.findall(r'^(\{"country".*)$', PAGE, re.MULTILINE)
            with urllib.request.urlopen(f"http://{me}/stores/totals/NL", timeout=LONG) as answer:
                assert answer.read().decode().strip() == line
            rows = names["totals"](spark, kafka_at).orderBy("country").collect()
            assert [tuple(row) for row in rows] == [("?", 1, 1.0), ("NL", 2, 12.5)]
            capsys.readouterr()
            at = ["--bootstrap-servers", kafka_at]
            assert command_line.run(["dead-letters", "list", topics["left-out"], *at]) == 0
            assert capsys.readouterr().out.split()[:3] == [
                "1",
                topics["orders"],
                "sparkrelay.errors.SerializationException",
            ]
        finally:
            assert streams.stop(LONG)
    assert json.loads(consumed(topics["totals"])[-1][3])["country"] in {"NL", "?"}


def _total(streams, country):
    row = streams.query("totals", country)
    return None if row is None else (row.n, row.amount)
