"""docs/tutorial.md: its scripts run as they stand there, and an instance is killed as the page says.

Only the broker's address and the names of topics and of the application are others: tests share a broker.
"""

import importlib.util
import json
import re
import subprocess
from pathlib import Path

import pytest
from tests.scripts import running

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
SCRIPTS = dict(
    zip(
        ("make_orders.py", "load.py", "pipeline.py", "check.py"),
        re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL),
        strict=True,
    )
)


@pytest.mark.long
def test_the_tutorial(kafka, make_topic, consumed, wait_until, tmp_path):
    orders, totals = make_topic("orders", 4), make_topic("totals", 4)
    names = {
        "localhost:9092": kafka.bootstrap_servers,
        'stream("orders"': f'stream("{orders}"',
        'send("orders"': f'send("{orders}"',
        '.to("totals"': f'.to("{totals}"',
        '["totals"]': f'["{totals}"]',
        '"application.id": "totals"': f'"application.id": "{totals}"',
        '"group.id": "check"': f'"group.id": f"check-{totals}-{{os.getpid()}}"',
        "import json\n": "import json\nimport os\n",
    }
    for name, script in SCRIPTS.items():
        assert f"`{name}`" in PAGE
        text = re.sub("|".join(map(re.escape, names)), lambda found: names[found[0]], script)
        (tmp_path / name).write_text(text)
    options = {"cwd": tmp_path, "environment": {"XDG_STATE_HOME": str(tmp_path / "state")}}

    def finished(name, *arguments):
        with running(tmp_path / name, *arguments, stdout=subprocess.PIPE, **options) as process:
            answer, _ = process.communicate(timeout=300)
        return process.returncode, answer

    logs = [tmp_path / "a.log", tmp_path / "b.log"]

    def both_run():
        assert (first.poll(), second.poll()) == (None, None), said()
        return all(processes(log) == "2 processes" and "RUNNING after" in log.read_text() for log in logs)

    def said():
        return "\n".join(log.read_text() for log in logs)

    assert finished("make_orders.py") == (0, "")
    early = tmp_path / "early.log"
    with (
        early.open("wb") as e,
        running(
            tmp_path / "check.py", "orders.csv", "customer", "amount", stdout=subprocess.PIPE, stderr=e, **options
        ) as checking,
        logs[0].open("wb") as a,
        logs[1].open("wb") as b,
        running(tmp_path / "pipeline.py", stdout=a, stderr=a, **options) as first,
        running(tmp_path / "pipeline.py", stdout=b, stderr=b, **options) as second,
    ):
        wait_until(both_run, said, 400)
        # It was started before the pipeline, and waits.
        waits = "waiting for topic totals: it has 0 of 20000 orders"
        wait_until(lambda: waits in early.read_text().replace(f"topic {totals}:", "topic totals:"), early.read_text)
        with running(tmp_path / "load.py", "orders.csv", "customer", "20", **options) as load:
            wait_until(lambda: len(consumed(totals)) > 200, said, 200)
            first.kill()
            assert load.wait(200) == 0
        # The last rebalance: A is gone from the group.
        wait_until(lambda: processes(logs[1]) == "1 process", said, 200)
        wait_until(lambda: sum(newest(consumed(totals)).values()) == 20_000, said, 200)
        code, answer = finished("check.py", "orders.csv", "customer", "amount")
        assert (code, answer.splitlines()[-1]) == (0, "20000 orders of 200 customers; wrong: none"), said()
        assert answer.splitlines()[-1] in PAGE.splitlines()
        assert checking.communicate(timeout=300)[0] == answer, early.read_text()
        second.terminate()
        assert second.wait(200) == 0, said()
        assert "tasks released" in logs[1].read_text()


def processes(log):
    return (re.findall(r"generation \d+, (\d+ process(?:es)?)", log.read_text()) or [None])[-1]


def newest(records):
    """Return the count of each customer, as of its newest row."""
    return {record[2]: json.loads(record[3])["orders"] for record in records}


def test_the_pipeline_is_run_as_the_one_of_the_readme():
    (readme,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)

    def frame(script):
        return script.partition("spark =")[0], script[script.index("with KafkaStreams") :]

    assert frame(SCRIPTS["pipeline.py"]) == frame(readme.replace('"delays"', '"totals"'))


def test_json_lines_are_read_as_the_same_rows(tmp_path):
    (tmp_path / "load.py").write_text(SCRIPTS["load.py"])
    spec = importlib.util.spec_from_file_location("load", tmp_path / "load.py")
    load = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(load)
    (tmp_path / "rows.csv").write_text("customer,amount,item\n007,2.50,tea\nada,,mug\nbob,nan,mug\n")
    lines = [
        {"customer": "007", "amount": 2.5, "item": "tea"},
        {"customer": "ada", "amount": None, "item": "mug"},
        {"customer": "bob", "amount": None, "item": "mug"},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = list(load.read(str(tmp_path / "rows.csv"), "customer"))
    assert rows == list(load.read(str(tmp_path / "rows.jsonl"), "customer"))
    assert [(key, row["amount"]) for key, row in rows] == [("007", 2.5), ("ada", None), ("bob", None)]
