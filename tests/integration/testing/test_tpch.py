"""TPC-H's queries over tables whose rows come, change and go, each beside Spark SQL."""

import pytest
from bench.tpch.check import QUERIES, check
from bench.tpch.tables import changes
from tests.marks import marked

pytestmark = pytest.mark.integration

#: Of the benchmark's: some 300 orders.
SCALE = 0.0002


@pytest.mark.parametrize("name", marked(QUERIES, {"q06"}))
def test_rows_are_those_of_spark_batch(spark, name):
    (verdict,) = check(spark, changes(SCALE, seed=1), [name], seed=1)
    assert verdict.text == "exact"


def test_rows_come_change_and_go():
    made = changes(SCALE, seed=2)
    assert made == changes(SCALE, seed=2) != changes(SCALE, seed=3)
    versions = {}
    for change in made:
        versions.setdefault((change.table, change.key), []).append(change.row is not None)
    assert {(True,), (True, True), (True, False), (True, False, True)} == {tuple(one) for one in versions.values()}
