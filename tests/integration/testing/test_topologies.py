"""Topologies answer as Kafka Streams' own do, whose answers are recorded: ``tests/oracle/topology``.

They are random ones, and those of Kafka Streams' own tests.
"""

import json
from pathlib import Path

import pytest
from tests.oracle.topology import kafkas_own, ours
from tests.oracle.topology.ours import differences, differences_together

FOLDER = Path(ours.__file__).parent
CASES = [json.loads(line) for line in (FOLDER / "cases.jsonl").read_text().splitlines()]
KAFKAS_OWN = [json.loads(line) for line in (FOLDER / "kafkas_own.jsonl").read_text().splitlines()]
#: The fewest nodes in which each operator and function occurs: what `make test` tries as one pipeline.
EVERYTHING = tuple(
    case
    for case in CASES
    if case["name"].removeprefix("random-") in {"20048", "9047", "30031", "30006", "3364", "6043", "20006", "30089"}
)
#: What it tries alone, too.
ALONE = "random-20006"

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case["name"], marks=() if case["name"] == ALONE else pytest.mark.long) for case in CASES],
)
def test_a_topology_answers_as_kafka_streams_does(case, spark):
    assert differences(case, spark) == []


@pytest.mark.long
@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in KAFKAS_OWN])
def test_kafka_streams_own_tests_answer_as_there(case, spark):
    assert differences(case, spark) == []


def test_kafka_streams_own_tests_are_recorded_as_they_are():
    recorded = [{name: part for name, part in case.items() if name != "expected"} for case in KAFKAS_OWN]
    assert recorded == list(kafkas_own.cases())


@pytest.mark.long
@pytest.mark.parametrize("cases", [EVERYTHING, CASES[:16]], ids=["every operator", "sixteen"])
def test_topologies_of_one_pipeline_answer_as_each_does_alone(cases, spark):
    assert differences_together(cases, spark) == []


def test_every_operator_is_among_them():
    nodes = [node for case in EVERYTHING for node in case["spec"]]
    assert {node["op"] for node in nodes} == {
        *("stream", "filter", "map", "merge", "aggregate", "to"),
        *("table", "to_table", "global_table", "having", "lookup"),
        *("stream_join", "table_join", "regroup"),
    }
    assert {node["how"] for node in nodes if node["op"] == "lookup"} == {"inner", "left"}
    assert {node["how"] for node in nodes if node["op"] == "stream_join"} == {"inner", "left", "outer"}
    assert {node["how"] for node in nodes if node["op"] == "table_join"} == {"inner", "left", "outer"}
    assert {function for node in nodes for function, *_ in node.get("aggs", ())} == set(ours.FUNCTIONS)
    assert {node.get("final") for node in nodes if {"window", "grace"} <= node.keys()} == {True, False}
    assert {node["final"] for node in nodes if "gap" in node} == {True, False}
    assert {node["by"] for node in nodes if node["op"] == "aggregate"} == {"key", "s"}


@pytest.mark.long
def test_a_difference_is_found(spark):
    case = json.loads(json.dumps(CASES[0]))
    for row in (row for written in case["expected"]["outputs"] for rows in written.values() for row in rows):
        row[2] += 1
    assert differences(case, spark)
    assert all(difference.startswith(case["name"]) for difference in differences_together([CASES[1], case], spark))


def _with_another_time(expected):
    for row in (row for written in expected["outputs"] for rows in written.values() for row in rows):
        row[2] += 1


def _without_a_row(expected):
    next(rows for written in expected["outputs"] for rows in written.values()).pop()


def _with_another_count(expected):
    expected["states"][0]["counts"][0]["n0"] += 1


def _without_an_open_session(expected):
    expected["states"][-1]["counts"].pop()


def _without_what_is_joined(expected):
    next(state["joined"] for state in expected["states"] if state["joined"]).pop()


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("shouldMergeSessions", _with_another_time),
        ("shouldMergeSessions final", _with_another_count),
        ("shouldMergeSessions final", _without_an_open_session),
        ("testKTable", _without_a_row),
        ("doJoinFromRightThenDeleteRightEntity inner", _without_what_is_joined),
        ("shouldNotJoinOnTableUpdates", _without_a_row),
    ],
)
def test_a_difference_from_kafka_streams_own_tests_is_found(name, changed, spark):
    case = next(case for case in KAFKAS_OWN if case["name"].endswith(f".{name}"))
    case = json.loads(json.dumps(case))
    changed(case["expected"])
    assert differences(case, spark)
