"""Random topologies answer as Kafka Streams' own do, whose answers are recorded: ``tests/oracle/topology``."""

import json
from pathlib import Path

import pytest
from tests.oracle.topology import ours
from tests.oracle.topology.ours import differences, differences_together

CASES = [json.loads(line) for line in Path(ours.__file__).with_name("cases.jsonl").read_text().splitlines()]
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
