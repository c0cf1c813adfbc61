import pyarrow as pa
import pytest
from bench import results
from bench.results import merged


def table(*rows):
    return pa.table(dict(zip(("user", "orders", "total"), zip(*rows, strict=True), strict=True)))


@pytest.mark.parametrize("at_once", [1, 1000])
def test_the_last_row_counts_or_all_of_them(monkeypatch, at_once):
    monkeypatch.setattr(results, "_MERGED_AT_ONCE", at_once)
    tables = [table(("a", 1, 0.25), ("b", 4, 1.0)), table(("a", 2, 0.5)), table(("a", 3, 2.0), ("c", 1, 1.0))]
    assert merged(tables, "last") == ({"a": (3, 2.0), "b": (4, 1.0), "c": (1, 1.0)}, 5)
    assert merged(tables, "sum") == ({"a": (6, 2.75), "b": (4, 1.0), "c": (1, 1.0)}, 5)


def test_nothing_comes_to_nothing():
    assert merged([], "last") == ({}, 0)
