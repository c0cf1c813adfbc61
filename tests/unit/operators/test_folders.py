"""Operators know the rooms that they share, and not one another."""

import ast
from pathlib import Path

import pytest

import sparkrelay.operators

HOME = Path(sparkrelay.operators.__file__).parent
#: What operators share, and the one module that knows all layouts.
SHARED = {"emitting", "table", "descriptions", "lateness", "row_numbers", "stored_rows", "watermarks"}
#: An operator that extends or contains another one.
EXTENDS = {
    "history": {"latest"},
    "sessions": {"aggregate"},
    "table_join": {"foreign_join", "pair_join"},
}
FOLDERS = sorted(path.name for path in HOME.iterdir() if (path / "__init__.py").exists() and path.name not in SHARED)


def imports_of(path):
    """Return the modules that a file imports, those for type checkers included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


@pytest.mark.parametrize("folder", FOLDERS)
def test_an_operator_imports_no_other_one(folder):
    used = {
        module.split(".")[2]
        for path in (HOME / folder).glob("*.py")
        for module in imports_of(path)
        if module.startswith("sparkrelay.operators.")
    }
    assert used - SHARED - {folder} == EXTENDS.get(folder, set())


@pytest.mark.parametrize("path", sorted(HOME.rglob("run.py")), ids=lambda path: path.parent.name)
def test_what_workers_run_knows_no_data_frames(path):
    # Processors are given Rows, and ask for PySpark's own state variables.
    allowed = (
        {"pyspark.sql.streaming.stateful_processor", "pyspark.sql.types"} if path.parent.name == "process" else set()
    )
    assert {module for module in imports_of(path) if module.startswith("pyspark.sql")} <= allowed
