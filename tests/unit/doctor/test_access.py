"""The permissions that an instance needs, as commands."""

from dataclasses import replace
from pathlib import Path

from sparkrelay.doctor.access import needed_access, permitted


def test_the_page_for_operators_lists_just_these_commands():
    needed = needed_access("delays", sources=["flights"], sinks=["totals"], dead_letters="letters")
    commands = [access.command("User:delays", "HOST:PORT") for access in needed]
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text().replace(" \\\n    ", " ")
    listed = [line.removeprefix("$ ") for line in page.splitlines() if line.startswith("$ kafka-acls.sh")]
    *of_instances, of_reset = listed
    assert of_instances == commands
    group = next(access for access in needed if access.kind == "group")
    assert of_reset == replace(group, operations=("DELETE",)).command("User:delays", "HOST:PORT")


def test_operations_of_an_answer():
    assert permitted({3, 8}) == {"READ", "DESCRIBE"}
    assert permitted(None) is None
