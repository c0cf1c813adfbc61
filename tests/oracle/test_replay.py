"""Our answers beside those recorded from Kafka Streams' Java classes: a sample in the clone, all of them if at hand."""

from __future__ import annotations

import importlib.util
import io
import json
from pathlib import Path

import pytest

from sparkrelay.cli.assign import answer_lines, assign
from sparkrelay.errors import ConfigException

HERE = Path(__file__).parent
SHARED = HERE.parents[2] / "shared" / "assignment-cases"
FILES = sorted((HERE / "cases").glob("*.jsonl")) + sorted(SHARED.glob("*.jsonl"))

_spec = importlib.util.spec_from_file_location("oracle_replay", HERE / "replay.py")
replay = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(replay)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_our_answers_are_javas(path):
    cases = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert cases
    wrong = {case["name"]: found for case in cases if (found := replay.differences(case))}
    assert wrong == {}


def test_replay_names_failing_cases_and_counts(tmp_path, capsys):
    case = json.loads((HERE / "cases" / "quirks.jsonl").read_text(encoding="utf-8").splitlines()[0])
    wrong = {**case, "name": "bent", "expected": {"assignment": {}, "probing_rebalance": False}}
    unknown = {**case, "name": "odd", "op": "nonsense"}
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in (case, wrong, unknown)), encoding="utf-8")
    assert replay.main([str(path)]) == 1
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in out[:2]] == ["bent", "odd"]
    assert out[-1] == "1 passed, 2 failed"


def test_every_line_is_answered_and_bad_ones_are_named():
    lines = [
        '{"name": "good", "op": "assignment_decode", "input": {"hex": "00"}}',
        "",
        '{"name": "odd", "op": "nonsense", "input": {}}',
        '{"name": "poor", "op": "ha", "input": {}}',
        "{broken",
        "[]",
    ]
    sink = io.StringIO()
    assert answer_lines(lines, sink) == 1
    answers = [json.loads(line) for line in sink.getvalue().splitlines()]
    errors = [answer["output"]["error"] for answer in answers]
    assert [answer.get("name") for answer in answers] == ["good", "odd", "poor", None, None]
    assert errors[0]["class"] == "TaskAssignmentException"
    for error, text in zip(
        errors[1:], ("unknown op 'nonsense'", "lacks 'tasks'", "line 5", "JSON object"), strict=True
    ):
        assert error["class"] == "MalformedInput"
        assert text in error["message"]
    assert answer_lines(lines[:1], io.StringIO()) == 0


def test_an_unreadable_file_is_named(tmp_path):
    with pytest.raises(ConfigException, match="no-such.jsonl"):
        assign(tmp_path / "no-such.jsonl")
