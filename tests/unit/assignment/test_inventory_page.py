"""The page that names our counterpart of each test of Kafka Streams: what it names is there, and no row is empty."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = Path(__file__).with_name("INVENTORY.md")
SECTIONS = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
REFERENCE = re.compile(r"`([\w/]+)::(\w+)`")


def rows(section):
    """Return the rows of a section's table: Java's test and ours."""
    table = [line for line in section.splitlines() if line.startswith("| ")]
    return [tuple(cell.strip() for cell in line.strip("|").split(" | ", 1)) for line in table[2:]]


def file_of(name):
    below = ROOT / "tests" if "/" in name else ROOT / "tests/unit/assignment"
    return next(below.rglob(f"{name}.py"), below / f"{name}.py")


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.split("\n")[0].split(",")[0])
def test_every_test_that_is_named_exists(section):
    missing = []
    for _java, ours in rows(section):
        for file, name in REFERENCE.findall(ours):
            path = file_of(file)
            if not path.exists() or not re.search(rf"^def {name}\(", path.read_text(encoding="utf-8"), re.MULTILINE):
                missing.append(f"{file}::{name}")
    assert missing == []


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.split("\n")[0].split(",")[0])
def test_every_row_has_a_test_or_a_reason(section):
    found = rows(section)
    assert found
    bare = [java for java, ours in found if not (REFERENCE.search(ours) or re.search(r"not applicable: \w+", ours))]
    assert bare == []


def test_no_row_stands_twice_in_its_table():
    for section in SECTIONS:
        names = [java for java, _ours in rows(section)]
        assert len(names) == len(set(names)), section.split("\n")[0]
