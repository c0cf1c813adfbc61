"""Joins of tables by any equal columns, over rows that come, change and go, each held against Spark batch."""

import json
import math
import random

import pytest
from tests.marks import marked

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

COLUMNS = {"a": "x int, u string, v long", "b": "y int, w long, z double, r string"}
QUERIES = {
    "inner": "SELECT a.k ak, b.k bk, x, v, w FROM a JOIN b ON x = y",
    "left": "SELECT a.k ak, b.k bk, x, y, v, w FROM a LEFT JOIN b ON x = y",
    "right": "SELECT a.k ak, b.k bk, x, y, v, w FROM a RIGHT JOIN b ON x = y",
    "full": "SELECT a.k ak, b.k bk, x, y, v, w FROM a FULL JOIN b ON x = y",
    "semi": "SELECT * FROM a WHERE EXISTS (SELECT 1 FROM b WHERE x = y)",
    "anti": "SELECT * FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE x = y AND w > 2)",
    "in": "SELECT * FROM a WHERE x IN (SELECT y FROM b WHERE w > 1)",
    "existence": "SELECT k, x, (v > 5 OR EXISTS (SELECT 1 FROM b WHERE x = y)) AS f FROM a",
    "expressions": "SELECT a.k ak, b.k bk, v, w FROM a JOIN b ON x + 1 = y * 2 AND v > w",
    "conditions of one side": "SELECT a.k ak, b.k bk, v, w FROM a LEFT JOIN b ON x = y AND v > 4 AND w < 6",
    "conditions of both sides of a full join": "SELECT a.k ak, b.k bk FROM a FULL JOIN b ON x = y AND v > 4 AND w < 6",
    "nulls that are equal": "SELECT a.k ak, b.k bk, v, w FROM a JOIN b ON x <=> y",
    "by copies of keys": "SELECT l.e, r.w FROM (SELECT coalesce(k, k) e, k FROM a) l LEFT JOIN "
    "(SELECT r, w, coalesce(k, k) e, w + 1 z FROM b) r ON concat('b', substr(l.k, 2)) = r.e",
    "by a copy of the key": "SELECT l.e, l.v, r.u FROM (SELECT coalesce(k, k) e, k, v FROM a) l "
    "LEFT JOIN (SELECT k, u, x + 1 y FROM a) r ON l.k = r.k",
    "with itself": "SELECT p.k pk, q.k qk, p.v + q.v s FROM a p JOIN a q ON p.x = q.x AND p.k < q.k",
    "three": "SELECT a.k ak, b.k bk, c.k ck, a.v, b.w, c.v cv FROM a JOIN b ON a.x = b.y JOIN a c ON c.x = b.w",
    "grouped": "SELECT x, count(*) n, sum(w) s FROM a JOIN b ON x = y GROUP BY x",
    "of groups": "SELECT p.u, p.n, q.r FROM (SELECT u, count(*) n FROM a GROUP BY u) p "
    "JOIN (SELECT r, count(*) m FROM b WHERE r IS NOT NULL GROUP BY r) q ON p.n = q.m",
    "without keys": "SELECT v, w FROM (SELECT v, x FROM a) JOIN (SELECT w, y FROM b) ON x = y",
    "named by the right": "SELECT b.k bk, a.k ak, v, w FROM a JOIN b ON a.k = b.r",
    "named by the right, left": "SELECT a.k ak, b.k bk, v, w FROM a LEFT JOIN b ON a.k = b.r",
    "named by the right, right": "SELECT a.k ak, b.k bk, v, w FROM a RIGHT JOIN b ON a.k = b.r",
    "named by the right, full": "SELECT a.k ak, b.k bk, v, w FROM a FULL JOIN b ON a.k = b.r",
    "named by the right, semi": "SELECT * FROM a LEFT SEMI JOIN b ON a.k = b.r",
    "numbers with two zeros": "SELECT p.k pk, q.k qk, p.z pz, q.z qz FROM b p JOIN b q ON p.z = q.z",
    "by no columns": "SELECT a.k ak, b.k bk, v, w FROM a JOIN b ON v < w",
    "by no columns, left": "SELECT a.k ak, b.k bk, v, w FROM a LEFT JOIN b ON v < w AND w > 5",
    "by no columns, right": "SELECT a.k ak, b.k bk, v, w FROM a RIGHT JOIN b ON v < w",
    "by no columns, full": "SELECT a.k ak, b.k bk, v, w FROM a FULL JOIN b ON v + 4 < w",
    "by no columns, anti": "SELECT * FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE v < w)",
    "cross": "SELECT a.k ak, b.k bk, v, w FROM a CROSS JOIN b WHERE v = 3",
    "conditions of pairs, left": "SELECT a.k ak, b.k bk, v, w FROM a LEFT JOIN b ON x = y AND v < w",
    "conditions of pairs, right": "SELECT a.k ak, b.k bk, v, w FROM a RIGHT JOIN b ON x = y AND v < w",
    "conditions of pairs, full": "SELECT a.k ak, b.k bk, v, w FROM a FULL JOIN b ON x = y AND v < w",
    "conditions of pairs, semi": "SELECT * FROM a WHERE EXISTS (SELECT 1 FROM b WHERE x = y AND v < w)",
    "conditions of pairs, anti": "SELECT * FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE x = y AND v < w)",
    "conditions of pairs, existence": "SELECT k, (v > 8 OR EXISTS (SELECT 1 FROM b WHERE x = y AND v < w)) f FROM a",
    "not in": "SELECT * FROM a WHERE x NOT IN (SELECT y FROM b WHERE w > 6)",
    "not in, with another condition": "SELECT * FROM a WHERE x NOT IN (SELECT y FROM b WHERE w = v)",
    "scalar": "SELECT k, v FROM a WHERE v > (SELECT avg(w) FROM b)",
    "scalar of no rows": "SELECT k, (SELECT count(*) + 1 FROM b WHERE w > 100) n, (SELECT max(w) FROM b) m FROM a",
    "total": "SELECT count(*) n, sum(v) s, min(u) least, max(x) most FROM a WHERE v < 5",
    "least and most": "SELECT x, min(v) least, max(u) most, count(*) n FROM a WHERE x IS NOT NULL GROUP BY x",
    "distinct": "SELECT DISTINCT x, u FROM a",
    "distinct values": "SELECT DISTINCT x FROM a",
    "intersect": "SELECT x FROM a INTERSECT SELECT y FROM b",
    "except": "SELECT x FROM a EXCEPT SELECT y FROM b",
    "union all": "SELECT k, x, v FROM a UNION ALL SELECT k, y, w FROM b WHERE w > 2",
    "union": "SELECT x FROM a UNION SELECT y FROM b UNION SELECT x FROM a WHERE v > 3",
    "grouped union": "SELECT x, sum(v) s, count(*) n FROM (SELECT x, v FROM a UNION ALL SELECT y, w FROM b "
    "UNION ALL SELECT x + 1, v FROM a) WHERE x IS NOT NULL GROUP BY x",
    "rollup": "SELECT x, u, count(*) n, sum(v) s FROM a GROUP BY ROLLUP (x, u)",
    "lateral": "SELECT k, t FROM a, LATERAL (SELECT sum(w) t FROM b WHERE y = x)",
    "limit": "SELECT k, v FROM a ORDER BY v DESC, k LIMIT 3",
    "limit of groups": "SELECT x, sum(v) s FROM a WHERE x IS NOT NULL GROUP BY x ORDER BY s, x LIMIT 2",
    "using": "SELECT * FROM (SELECT k ak, x j, v FROM a) FULL JOIN (SELECT k bk, y j, w FROM b) USING (j)",
}
ALWAYS = ("inner", "full", "anti", "by no columns", "conditions of pairs, full", "scalar of no rows", "union all")


def changes(chosen):
    """Yield rows that come, change and go: table, key and row."""
    for _ in range(chosen.randint(20, 50)):
        table = chosen.choice("ab")
        key, number = f"{table}{chosen.randrange(6)}", chosen.choice([None, 0, 1, 2, 3])
        if chosen.random() < 0.2:
            yield table, key, None
        elif table == "a":
            yield table, key, {"x": number, "u": chosen.choice("pq"), "v": chosen.randint(0, 9)}
        else:
            zeros, names = [0.0, -0.0, 1.5, float("nan"), None], ["a0", "a1", "a2", "a9", None]
            rest = {"z": chosen.choice(zeros), "r": chosen.choice(names)}
            yield table, key, {"y": number, "w": chosen.randint(0, 9), **rest}


def texts(rows):
    """Return rows as texts, without nulls, sorted."""
    kept = (
        {
            name: "NaN" if isinstance(value, float) and math.isnan(value) else value
            for name, value in row.items()
            if value is not None
        }
        for row in rows
    )
    return sorted(json.dumps(row, sort_keys=True) for row in kept)


@pytest.mark.parametrize("name", marked(QUERIES, ALWAYS))
def test_rows_are_those_of_spark_batch(spark, name):
    query = QUERIES[name]
    builder = StreamsBuilder(spark)
    for table, columns in COLUMNS.items():
        builder.table(table, key=String("k"), value=Json(columns), name=table)
    builder.sql(query).to("out")
    with TopologyTestDriver(builder.build(), spark=spark, partitions=3, batch="all") as driver:
        for seed in range(2):
            chosen = random.Random(f"{name} {seed}")
            driver.clear()
            topics = {table: driver.create_input_topic(table) for table in COLUMNS}
            out = driver.create_output_topic("out")
            held = {table: {} for table in COLUMNS}
            for table, key, row in changes(chosen):
                topics[table].pipe_input(key, row)
                held[table][key] = row
                match chosen.randrange(24):
                    case 0 | 1 | 2:
                        driver.process()
                    case 3:
                        driver.restart(from_changelog=chosen.random() < 0.5)
            last = {record.key: record.value for record in out.read_records()}
            for table, columns in COLUMNS.items():
                rows = [{"k": key, **row} for key, row in held[table].items() if row is not None]
                spark.createDataFrame(rows, f"k string, {columns}").createOrReplaceTempView(table)
            wanted = [row.asDict() for row in spark.sql(query).collect()]
            assert texts(row for row in last.values() if row is not None) == texts(wanted), f"seed {seed}"
