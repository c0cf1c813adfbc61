"""Our answers beside those recorded from Kafka Streams' Java classes: a sample in the clone, more if at hand."""

from __future__ import annotations

import io
import json
import random
from collections import defaultdict
from pathlib import Path

import pytest
from tests.oracle import replay
from tests.oracle.assign import answer_lines, main
from tests.oracle.assign_ops import OPERATIONS

HERE = Path(__file__).parent
CLONE = HERE / "cases"
SHARED = HERE.parents[2] / "shared" / "assignment-cases"
#: No answer of Java's is recorded: which client looks again is the order of a hash table.
NOT_RECORDED = {"sticky_preserve"}
#: Cases of one operation that a run compares outside the clone; others come with another seed.
MOST = 100


def cases_in(folder):
    """Return the cases of a folder's files by operation."""
    found = defaultdict(list)
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            case = json.loads(line)
            found[case["op"]].append(case)
    return found


@pytest.fixture(scope="module")
def in_the_clone():
    return cases_in(CLONE)


@pytest.fixture(scope="module")
def at_hand(in_the_clone):
    found = cases_in(SHARED)
    if not found:
        count = sum(map(len, in_the_clone.values()))
        pytest.skip(f"{SHARED} has no cases: compared are the {count} of {CLONE.relative_to(HERE.parents[1])} alone")
    return found


def wrong_in(cases):
    return {case["name"]: found for case in cases if (found := replay.differences(case))}


@pytest.mark.parametrize("operation", sorted(OPERATIONS.keys() - NOT_RECORDED))
def test_our_answers_are_javas(in_the_clone, operation):
    assert in_the_clone[operation], "no case of the sample has this operation"
    assert wrong_in(in_the_clone[operation]) == {}


@pytest.mark.parametrize("operation", sorted(OPERATIONS.keys() - NOT_RECORDED))
def test_our_answers_are_javas_on_more_cases(at_hand, operation):
    seed = random.randrange(2**32)
    cases = at_hand[operation]
    chosen = random.Random(seed).sample(cases, min(MOST, len(cases)))
    assert chosen
    assert wrong_in(chosen) == {}, f"{len(chosen)} of {len(cases)} cases, seed {seed}"


def test_no_operation_is_recorded_that_is_not_replayed(in_the_clone):
    assert in_the_clone.keys() <= OPERATIONS.keys() - NOT_RECORDED


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


def test_an_unreadable_file_is_named(tmp_path, capsys):
    assert main([str(tmp_path / "no-such.jsonl")]) == 2
    assert "no-such.jsonl: No such file" in capsys.readouterr().err


def test_requests_that_are_no_text_are_answered_as_malformed(tmp_path, capsys):
    file = tmp_path / "requests.jsonl"
    file.write_bytes(b'\xff\xfe\x00\n{"name": "x"}\n')
    assert main([str(file)]) == 1
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["output"]["error"]["class"] == "MalformedInput"
    assert second["name"] == "x"
