"""The page that names our counterpart of each consumer test of Kafka: what it names is there, and no row is empty."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "tests" / "integration" / "consumer"
SECTIONS = (TESTS / "conformance" / "INVENTORY.md").read_text(encoding="utf-8").split("\n## ")[1:]
*OF_KAFKA, BUGS = SECTIONS


def title(section):
    return section.split("\n")[0].split(":")[0]


def rows(section):
    """Return the rows of a section's table, as lists of cells."""
    table = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[2:]]


def named(cell, file):
    """Return what a cell names: files and tests with their parameter, each test in the file named last before it."""
    found = []
    for name in re.findall(r"`([^`]+)`", cell):
        if name.endswith(".py"):
            file = name
            found.append((file, None, None))
        else:
            test, _, parameter = name.rstrip("]").partition("[")
            found.append((file, test, parameter or None))
    return found


def is_there(path, test, parameter):
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return bool(
        text
        and (test is None or re.search(rf"^(async )?def test_{test}\(", text, re.MULTILINE))
        and (parameter is None or re.search(rf"\b{re.escape(parameter)}\b", text))
    )


@pytest.mark.parametrize("section", OF_KAFKA, ids=title)
def test_every_test_that_stands_for_one_of_kafkas_exists(section):
    file = re.search(r"`([\w/]+\.py)`", section.split("\n")[0]).group(1)
    missing = [
        (kafka, name)
        for kafka, ours, *_ in rows(section)
        for name in named(ours, file)
        if not is_there(TESTS / "conformance" / name[0], *name[1:])
    ]
    assert missing == []


@pytest.mark.parametrize("section", OF_KAFKA, ids=title)
def test_every_test_of_kafka_has_one_of_ours_or_a_reason(section):
    found = rows(section)
    assert found
    assert [
        kafka for kafka, ours, *why in found if not (named(ours, "") or (ours == "none" and "".join(why).strip(" |")))
    ] == []


def test_every_bug_has_a_test_that_names_it_or_is_named():
    wrong = []
    for bug, _what, cell in rows(BUGS):
        tests = named(cell, None)
        for file, test, parameter in tests:
            path = ROOT / file if file.startswith("tests/") else TESTS / file
            if not is_there(path, test, parameter):
                wrong.append((bug, file, test))
        files = {file for file, *_ in tests} - {file for file, test, _ in tests if test is not None}
        for file in files:
            path = ROOT / file if file.startswith("tests/") else TESTS / file
            if not any(number in path.read_text(encoding="utf-8") for number in re.findall(r"\d+", bug)):
                wrong.append((bug, file, "its number"))
        if not tests:
            wrong.append((bug, cell, None))
    assert wrong == []
