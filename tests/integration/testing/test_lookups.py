"""Streams that look into tables of groups, of joins, of rankings and of steps, each held against Spark batch.

The rows of a table are all there before rows of the stream look; then it changes, and others look.
"""

import json
import random
from collections import Counter

import pytest
from tests.marks import first_of, marked

from sparkrelay import Json, Long, StreamsBuilder, String
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

COLUMNS = {"a": "x int, v long", "b": "w long, z string"}
TABLES = {
    "groups": "SELECT x, count(*) AS n, sum(v) AS total FROM a WHERE x IS NOT NULL GROUP BY x",
    "filtered groups": "SELECT x, count(*) AS n, sum(v) AS total FROM a WHERE x IS NOT NULL GROUP BY x "
    "HAVING count(*) > 1",
    "columns of groups": "SELECT x, sum(v) * 2 AS total, 7 AS n FROM a WHERE x IS NOT NULL GROUP BY x",
    "join": "SELECT a.k, x, v AS n, w AS total FROM a JOIN b USING (k)",
    "left join": "SELECT a.k, x, coalesce(v, 0) AS n, w AS total FROM a LEFT JOIN b USING (k) WHERE x IS NOT NULL",
    "three": "SELECT a.k, a.x, c.v AS n, w AS total FROM a JOIN b USING (k) JOIN (SELECT k, v FROM a WHERE v > 3) c "
    "USING (k)",
    "foreign key": "SELECT a.k, a.x, a.v AS n, b.w AS total FROM a LEFT JOIN b ON a.u = b.k",
    "groups of joins": "SELECT x, count(w) AS n, sum(w) AS total FROM a JOIN b USING (k) WHERE x IS NOT NULL "
    "GROUP BY x",
}
LOOKS = {
    "left": "SELECT s.id, t.n, t.total FROM s LEFT JOIN t ON s.{key} = t.{key}",
    "inner": "SELECT s.id, t.n, t.total FROM s JOIN t ON s.{key} = t.{key} AND s.id > t.n",
    "anti": "SELECT s.id FROM s LEFT ANTI JOIN t ON s.{key} = t.{key}",
}
COLUMNS["a"] = "x int, v long, u string"


def changes(chosen):
    """Yield rows that come, change and go: table, key and row."""
    for _ in range(chosen.randint(5, 15)):
        table, key = chosen.choice("ab"), f"k{chosen.randrange(5)}"
        if chosen.random() < 0.2:
            yield table, key, None
        elif table == "a":
            u = f"k{chosen.randrange(6)}"
            yield table, key, {"x": chosen.choice([None, 0, 1, 2]), "v": chosen.randint(0, 9), "u": u}
        else:
            yield table, key, {"w": chosen.randint(0, 9), "z": "z"}


def texts(rows):
    kept = ({name: value for name, value in row.items() if value is not None} for row in rows)
    return sorted(json.dumps(row, sort_keys=True) for row in kept)


@pytest.mark.long
@pytest.mark.parametrize("name", marked(TABLES, ("filtered groups", "left join")))
def test_streams_find_the_rows_of_spark_batch(spark, name):
    key = "x" if "groups" in name else "k"
    builder = StreamsBuilder(spark)
    builder.stream("s", key=Long("id"), value=Json("k string, x int"), name="s")
    for table, columns in COLUMNS.items():
        builder.table(table, key=String("k"), value=Json(columns), name=table)
    builder.sql(TABLES[name]).createOrReplaceTempView("t")
    for how, query in LOOKS.items():
        builder.sql(query.format(key=key)).to(how, value=Json())
    topology = builder.build()
    with TopologyTestDriver(topology, spark=spark, partitions=3, batch="all") as driver:
        for seed in range(2):
            chosen = random.Random(f"{name} {seed}")
            driver.clear()
            topics = {table: driver.create_input_topic(table) for table in (*COLUMNS, "s")}
            held = {table: {} for table in COLUMNS}
            looking, wanted = 0, {how: [] for how in LOOKS}
            for _ in range(3):
                for table, own, row in changes(chosen):
                    topics[table].pipe_input(own, row)
                    held[table][own] = row
                driver.process()
                if chosen.random() < 0.5:
                    driver.restart(from_changelog=chosen.random() < 0.5)
                rows = [(looking + n, f"k{chosen.randrange(6)}", chosen.randrange(4)) for n in range(8)]
                looking += len(rows)
                for id_, k, x in rows:
                    topics["s"].pipe_input(id_, {"k": k, "x": x})
                driver.process()
                for table, columns in COLUMNS.items():
                    known = [{"k": own, **row} for own, row in held[table].items() if row is not None]
                    spark.createDataFrame(known, f"k string, {columns}").createOrReplaceTempView(table)
                spark.createDataFrame(rows, "id long, k string, x int").createOrReplaceTempView("s")
                spark.sql(TABLES[name]).createOrReplaceTempView("t")
                for how, query in LOOKS.items():
                    wanted[how] += [row.asDict() for row in spark.sql(query.format(key=key)).collect()]
            for how in LOOKS:
                found = [record.value for record in driver.create_output_topic(how).read_records()]
                assert texts(found) == texts(wanted[how]), f"{how}, seed {seed}"


TOTALS = {
    "left": "SELECT id, n, total FROM s LEFT JOIN (SELECT count(*) AS n, sum(v) AS total FROM a) ON x < n",
    "inner": "SELECT id, total FROM s, (SELECT sum(v) AS total FROM a) WHERE id >= total",
    "anti": "SELECT id FROM s LEFT ANTI JOIN (SELECT max(x) AS most FROM a) ON s.x = most",
    "value": "SELECT id, (SELECT count(*) FROM a) AS n, (SELECT max(v) FROM a WHERE x > 1) AS most FROM s",
    "above": "SELECT id FROM s WHERE x > (SELECT avg(v) / 3 FROM a)",
    "counted": "SELECT k, count(*) AS n FROM s WHERE x < (SELECT count(*) FROM a) GROUP BY k",
}


@pytest.mark.long
@pytest.mark.parametrize("seed", first_of(range(3)))
def test_streams_find_totals_of_all_rows_as_spark_batch_does(spark, seed):
    builder = StreamsBuilder(spark)
    builder.stream("s", key=Long("id"), value=Json("k string, x int"), name="s")
    builder.table("a", key=String("k"), value=Json(COLUMNS["a"]), name="a")
    for name, query in TOTALS.items():
        builder.sql(query).to(name, value=Json())
    chosen, wanted = random.Random(seed), {name: [] for name in TOTALS}
    held, seen = {"stays": {"x": 1, "v": 2}}, []
    with TopologyTestDriver(builder.build(), spark=spark, partitions=3, batch="all") as driver:
        table, stream = driver.create_input_topic("a"), driver.create_input_topic("s")
        table.pipe_input("stays", held["stays"])
        for _ in range(4):
            for name, own, row in changes(chosen):
                if name == "a":
                    table.pipe_input(own, row)
                    held[own] = row
            driver.process()
            if chosen.random() < 0.5:
                driver.restart(from_changelog=chosen.random() < 0.5)
            rows = [(len(seen) + n, f"k{chosen.randrange(3)}", chosen.choice([None, 0, 1, 2, 4])) for n in range(8)]
            seen += rows
            for id_, k, x in rows:
                stream.pipe_input(id_, {"k": k, "x": x})
            driver.process()
            known = [{"k": own, **row} for own, row in held.items() if row is not None]
            spark.createDataFrame(known, f"k string, {COLUMNS['a']}").createOrReplaceTempView("a")
            spark.createDataFrame(rows, "id long, k string, x int").createOrReplaceTempView("s")
            for name, query in TOTALS.items():
                wanted[name] += [row.asDict() for row in spark.sql(query).collect()]
        found = {name: driver.create_output_topic(name).read_records() for name in TOTALS}
    for name in TOTALS:
        rows = [record.value for record in found[name]]
        if name == "counted":
            total = Counter()
            for row in wanted[name]:
                total[row["k"]] += row["n"]
            assert {record.value["k"]: record.value["n"] for record in found[name]} == total
        else:
            assert texts(rows) == texts(wanted[name]), name


def test_a_table_that_is_looked_into_twice_is_kept_once(spark):
    builder = StreamsBuilder(spark)
    clicks = builder.stream("clicks", key=String("user"), value=Json("n long"))
    payments = builder.stream("payments", key=String("id"), value=Json("user string, amount long"))
    totals = payments.groupBy("user").count()
    for topic in ("one", "two"):
        clicks.join(totals, "user").to(topic)
    stores = [leg.store for leg in builder.build().legs if leg.aggregation is not None]
    assert sorted(stores) == ["payments-by-user", "payments-by-user-table-by-user"]
