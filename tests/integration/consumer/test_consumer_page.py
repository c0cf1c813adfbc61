"""docs/consumer.md: every snippet runs as a reader would run it, one after another, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sparkrelay.errors
from sparkrelay.consumer import AsyncConsumer, Consumer

pytestmark = pytest.mark.integration

PAGE = (Path(__file__).parents[3] / "docs" / "consumer.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_all_snippets_run(kafka, make_topic, produce, group, capsys):
    topic = make_topic("page")
    names = {}
    for number, block in enumerate(BLOCKS):
        produce(topic, [("k", {"origin": "EWR", "delay": 5.0 * i}) for i in range(3)])
        text = block.replace("localhost:9092", kafka.bootstrap_servers).replace('"flights"', f'"{topic}"')
        text = re.sub(r'"(report|typed|by-hand)"', rf'"\1-{group}"', text)
        line = PAGE[: PAGE.index(block)].count("\n")
        exec(compile("\n" * line + text, f"docs/consumer.md, snippet {number}", "exec"), names)
    said = capsys.readouterr().out
    assert "b'k' b'{" in said
    assert "[0.0, 5.0, 10.0" in said
    assert "one is enough" in said
    assert re.search(r"^trio got [1-9]", said, re.MULTILINE)
    assert re.search(r"^anyio got [1-9]", said, re.MULTILINE)
    assert f"got [TopicPartition(topic='{topic}', partition=0)]" in said
    names["workers"].shutdown()


def test_the_methods_that_the_page_names_exist():
    right = " ".join(row.split("|")[2] for row in PAGE.splitlines() if row.startswith("| `"))
    for name in re.findall(r"`(\w+)\(", right):
        assert name == "Consumer" or hasattr(Consumer, name), name
        assert name == "Consumer" or hasattr(AsyncConsumer, name), name


def test_the_errors_that_the_page_names_exist():
    for name in re.findall(r"`(\w+(?:Exception|Error))`", PAGE):
        assert hasattr(sparkrelay.errors, name) or name == "TimeoutError", name
