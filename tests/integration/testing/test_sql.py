"""SQL over streams and tables gives what Spark gives over the same rows, and scripts of it run."""

import json
import subprocess
import sys

import pytest
from pyspark.sql import functions as F
from tests.docs_pages import run, sql

from sparkrelay import Json, Long, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

CLICKS = "page string, seconds long, at timestamp, tags array<string>"
COLUMNS = {"clicks": CLICKS, "views": "ad string, seen timestamp", "users": "city string, boss string"}
COLUMNS |= {"plans": "plan string"}
TABLES = {"users", "plans"}
ROWS = {
    "users": [("ada", {"city": "Oslo", "boss": "bob"}), ("bob", {"city": "Lima"})],
    "plans": [("ada", {"plan": "gold"})],
    "clicks": [
        ("ada", {"page": "a", "seconds": 3, "at": "2026-01-01T00:00:00.000Z", "tags": ["x", "y"]}),
        ("bob", {"page": "b", "seconds": 5, "at": "2026-01-01T00:01:00.000Z", "tags": []}),
        ("ada", {"page": "a", "seconds": 7, "at": "2026-01-01T00:02:00.000Z", "tags": ["x"]}),
        ("cid", {"page": "c", "seconds": 1, "at": "2026-01-01T00:30:00.000Z"}),
    ],
    "views": [
        ("ada", {"ad": "q", "seen": "2026-01-01T00:00:00.000Z"}),
        ("bob", {"ad": "r", "seen": "2026-01-01T00:09:00.000Z"}),
        ("cid", {"ad": "s", "seen": "2026-01-01T00:31:00.000Z"}),
    ],
}
#: Of docs/how-to/sql.md's table, and of what is below it.
QUERIES = [
    "SELECT user, upper(page) AS page, CASE WHEN seconds > 4 THEN 'long' END AS how FROM clicks WHERE seconds <> 5",
    "SELECT user, tag FROM clicks LATERAL VIEW explode(tags) t AS tag",
    "SELECT tag, count(*) AS n, sum(seconds) AS s FROM clicks LATERAL VIEW explode(tags) t AS tag GROUP BY tag",
    (
        "SELECT at, word, place, max(page) AS p FROM clicks LATERAL VIEW OUTER posexplode(tags) t AS place, tag "
        "LATERAL VIEW explode(split(user, '')) u AS word WHERE word <> 'b' GROUP BY at, word, place"
    ),
    "SELECT user, k, v FROM (SELECT user, seconds, length(page) AS l FROM clicks) UNPIVOT (v FOR k IN (seconds, l))",
    "SELECT page, sum(seconds) AS s, count(*) FILTER (WHERE seconds > 4) AS n FROM clicks GROUP BY page",
    "SELECT page, count(DISTINCT user) AS n FROM clicks GROUP BY ALL HAVING count(*) > 1",
    "SELECT user, page, sum(seconds) AS s FROM clicks GROUP BY ROLLUP (user, page)",
    "SELECT user, page, sum(seconds) AS s FROM clicks GROUP BY CUBE (user, page)",
    (
        "SELECT user, window.start, count(*) AS n FROM clicks WATERMARK at DELAY OF INTERVAL 1 MINUTE "
        "GROUP BY user, window(at, '5 minutes')"
    ),
    (
        "SELECT user, session_window.start AS a, count(*) AS n FROM clicks WATERMARK at DELAY OF INTERVAL 1 MINUTE "
        "GROUP BY user, session_window(at, '5 minutes')"
    ),
    "SELECT page, count(*) AS n FROM (SELECT page, count(*) AS n FROM clicks GROUP BY page) GROUP BY page",
    (
        "SELECT * FROM (SELECT page, count(*) AS a FROM clicks WHERE seconds > 4 GROUP BY page) "
        "JOIN (SELECT page, count(*) AS b FROM clicks WHERE seconds < 6 GROUP BY page) USING (page)"
    ),
    "SELECT s, count(*) AS n FROM (SELECT user, sum(seconds) AS s FROM clicks GROUP BY user) GROUP BY s",
    "SELECT user, page, city FROM clicks JOIN users USING (user)",
    "SELECT c.user, page, city FROM clicks c LEFT JOIN users u ON u.user = c.user AND city = 'Oslo'",
    (
        "SELECT page, count(*) AS n, count(city) AS c FROM (SELECT page, city FROM clicks c LEFT JOIN users u "
        "ON u.user = c.user AND city = 'Oslo') GROUP BY page"
    ),
    "SELECT user, page, c FROM clicks JOIN (SELECT user, upper(city) AS c FROM users WHERE city = 'Oslo') USING (user)",
    "SELECT user, page FROM clicks LEFT SEMI JOIN users USING (user)",
    "SELECT user, page FROM clicks LEFT ANTI JOIN users USING (user)",
    "SELECT user, page FROM clicks WHERE user IN (SELECT user FROM users WHERE city = 'Oslo') AND seconds > 1",
    "SELECT page, count(*) AS n FROM clicks WHERE user IN (SELECT user FROM users) GROUP BY page",
    "SELECT user FROM clicks c WHERE EXISTS (SELECT 1 FROM users u WHERE u.user = c.user)",
    "SELECT user FROM clicks c WHERE NOT EXISTS (SELECT 1 FROM users u WHERE u.user = c.user AND city = 'Oslo')",
    "SELECT user FROM clicks c WHERE seconds > 5 OR EXISTS (SELECT 1 FROM users u WHERE u.user = c.user)",
    "SELECT user, EXISTS (SELECT 1 FROM users u WHERE u.user = c.user AND city = 'Oslo') AS there FROM clicks c",
    "SELECT user, (SELECT city FROM users u WHERE u.user = c.user) AS city FROM clicks c",
    "SELECT user, page, city FROM clicks c, LATERAL (SELECT city FROM users u WHERE u.user = c.user)",
    "WITH o AS (SELECT * FROM users WHERE city = 'Oslo') SELECT user FROM clicks WHERE user IN (SELECT user FROM o)",
    "SELECT user FROM clicks WHERE page IN (SELECT page FROM titles) AND user IN (SELECT user FROM users)",
    "SELECT user, seconds, (SELECT max(title) FROM titles) AS title FROM clicks",
    "SELECT user FROM clicks WHERE page NOT IN (SELECT page FROM titles)",
    (
        "SELECT c.user, page, ad FROM (SELECT * FROM clicks WATERMARK at DELAY OF INTERVAL 1 MINUTE) c "
        "JOIN (SELECT * FROM views WATERMARK seen DELAY OF INTERVAL 1 MINUTE) v "
        "ON c.user = v.user AND seen BETWEEN at - INTERVAL 5 MINUTES AND at + INTERVAL 5 MINUTES"
    ),
    "SELECT * FROM users FULL JOIN plans USING (user)",
    "SELECT u.user, u.city, b.city AS other FROM users u LEFT JOIN users b ON u.boss = b.user",
    "SELECT city, count(*) AS n FROM users GROUP BY city",
    "SELECT u.user, v.user AS other FROM users u JOIN users v ON length(u.city) = length(v.city) AND u.user < v.user",
    "SELECT user, page, title FROM clicks LEFT JOIN titles USING (page)",
    "SELECT user, title FROM clicks JOIN titles t ON t.page > clicks.page",
    (
        "SELECT user, page, seconds, row_number() OVER (PARTITION BY user ORDER BY seconds DESC) AS place FROM clicks "
        "QUALIFY place <= 1"
    ),
    (
        "WITH first AS (SELECT user, page, row_number() OVER (PARTITION BY user ORDER BY at) AS n FROM clicks), "
        "one AS (SELECT user, page FROM first WHERE n = 1) SELECT page, count(*) AS n FROM one GROUP BY page"
    ),
    "WITH t AS (SELECT page, title FROM titles) SELECT user, title FROM clicks LEFT JOIN t USING (page)",
    "WITH v AS (SELECT * FROM VALUES ('a', 10) AS v(page, w)) SELECT user, w FROM clicks JOIN v USING (page)",
    (
        "WITH t AS (SELECT page, title FROM titles), one AS (SELECT page FROM t WHERE title = 'Beta'), "
        "c AS (SELECT user, page FROM clicks) "
        "SELECT c.user, t.title FROM c JOIN t ON c.page = t.page JOIN t u ON c.page = u.page "
        "WHERE c.page NOT IN (SELECT page FROM one)"
    ),
    "SELECT c.user, page, city FROM clicks c, users u WHERE c.user = u.user AND seconds > 4",
    "SELECT u.user, city, plan FROM users u, plans p WHERE u.user = p.user",
    "SELECT u.user, city, plan FROM users u LEFT JOIN plans p ON u.user = p.user AND plan = 'none'",
    "SELECT u.user, p.plan FROM users u LEFT JOIN LATERAL (SELECT plan FROM plans WHERE plans.user = u.user) p ON true",
    (
        "SELECT u.user, p.plan, b.city FROM users u LEFT JOIN plans p ON u.user = p.user "
        "LEFT JOIN users b ON u.user = b.boss"
    ),
    (
        "WITH g AS (SELECT page, count(*) AS n FROM clicks GROUP BY page) "
        "SELECT x.page, x.n, y.n AS m FROM g x JOIN g y ON x.page = y.page"
    ),
    "SELECT DISTINCT user FROM clicks",
    "SELECT user, page FROM clicks UNION ALL SELECT user, ad FROM views",
    "SELECT user FROM clicks UNION SELECT user FROM views",
    "FROM clicks |> AGGREGATE max(seconds) AS most GROUP BY page |> EXTEND most * 2 AS twice |> WHERE twice > 10",
]


def normalized(rows):
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


@pytest.fixture
def titles(spark):
    spark.createDataFrame([("a", "Alpha"), ("b", "Beta")], "page string, title string").createOrReplaceTempView(
        "titles"
    )
    yield
    spark.catalog.dropTempView("titles")


def expected(spark, query, names):
    """Return what Spark's own query gives over the same rows."""
    try:
        for name in names:
            text = [json.dumps({"user": user, **row}) for user, row in ROWS[name]]
            schema = f"user string, {COLUMNS[name]}"
            frame = spark.createDataFrame([(one,) for one in text], "text string")
            frame.select(F.from_json("text", schema).alias("r")).select("r.*").createOrReplaceTempView(name)
        made = spark.sql(query)
        return [json.loads(row.j) for row in made.select(F.to_json(F.struct("*")).alias("j")).collect()]
    finally:
        for name in names:
            spark.catalog.dropTempView(name)


@pytest.mark.usefixtures("titles")
@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_what_spark_gives(spark, query):
    builder = StreamsBuilder(spark)
    names = [name for name in COLUMNS if name in query]
    for name in names:
        made = builder.table if name in TABLES else builder.stream
        made(name, key=String("user"), value=Json(COLUMNS[name]))
    builder.sql(query).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        for name in sorted(names, key=lambda name: name not in TABLES):
            driver.create_input_topic(name).pipe_rows(ROWS[name])
        rows = [record.value for record in driver.create_output_topic("out").read_records()]
    assert normalized(rows) == normalized(expected(spark, query, names))


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT user FROM clicks ORDER BY user", "no order"),
        ("SELECT user FROM clicks LIMIT 3", "no end"),
        ("SELECT user FROM clicks EXCEPT SELECT user FROM users", "compares whole tables: write NOT EXISTS"),
        ("SELECT user FROM clicks INTERSECT SELECT user FROM users", "compares whole tables: write EXISTS"),
        ("SELECT user FROM clicks WHERE user NOT IN (SELECT user FROM users)", "write NOT EXISTS"),
        ("SELECT user, lag(page) OVER (PARTITION BY user ORDER BY tags) AS p FROM clicks", "by their event time alone"),
        ("SELECT user, date'today' AS d FROM clicks", r"current_date\(\)"),
        ("SELECT user, n FROM users JOIN (SELECT 1 AS n) ON length(city) > n", "joins a table with a DataFrame"),
        ("SELECT user FROM users LEFT SEMI JOIN (SELECT 1 AS n) ON length(city) > n", "joins a table with a DataFrame"),
        ("SELECT 1 AS one", "begin with a stream"),
        ("SHOW TABLES", "takes a query, not ShowTables"),
        ("SET a = b", "takes a query, not SetCommand"),
        ("CREATE TABLE t AS SELECT * FROM clicks", "takes a query, not CreateTableAsSelect"),
        ("WITH x AS (SELECT * FROM clicks) INSERT INTO y SELECT * FROM x", "takes a query, not InsertIntoStatement"),
        ("BEGIN SELECT 1; END", "takes a query, not CompoundBody"),
    ],
)
def test_what_a_query_cannot_do(spark, query, error):
    builder = StreamsBuilder(spark)
    builder.stream("clicks", key=String("user"), value=Json(CLICKS))
    builder.table("users", key=String("user"), value=Json(COLUMNS["users"]))
    with pytest.raises(TopologyException, match=rf"test_sql.py:\d+: .*{error}"):
        builder.sql(query)


def test_a_hint_of_a_table_changes_nothing(spark):
    builder = StreamsBuilder(spark)
    clicks = builder.stream("clicks", key=String("user"), value=Json(CLICKS))
    users = builder.table("users", key=String("user"), value=Json(COLUMNS["users"]))
    clicks.join(F.broadcast(users), "user").to("a", value=Json())
    builder.sql("SELECT /*+ BROADCAST(users) */ * FROM clicks JOIN users USING (user)").to("b", value=Json())
    assert [one.stores for one in builder.build().subtopologies] == [("users-table",)]


def test_a_result_that_leads_nowhere_is_refused(spark):
    builder = StreamsBuilder(spark)
    builder.stream("clicks", key=String("user"), value=Json(CLICKS))
    builder.sql("SELECT user FROM clicks WHERE seconds > 1")
    with pytest.raises(TopologyException, match=r"test_sql.py:\d+: .*sql"):
        builder.build()


# -- docs/how-to/sql.md ---------------------------------------------------------------------------------------------


def test_the_page_s_auctions_are_hot(spark):
    names = run("Write SQL over streams and tables")
    with TopologyTestDriver(names["hot_auctions"](), spark=spark) as driver:
        bids, hot = driver.create_input_topic("bids"), driver.create_output_topic("hot")
        for second, price in ((1, 20.0), (2, 30.0), (3, 1.0), (16, 40.0)):
            bids.pipe_input(7, {"price": price, "at": f"2026-01-01T00:00:{second:02}Z"})
        row = {"auction": 7, "start": "2026-01-01T00:00:00.000Z", "bids": 2, "highest": 30.0}
        assert hot.read_rows() == [row]


def test_the_page_s_names_are_found(spark):
    titles = spark.createDataFrame([("a", "Alpha")], "page string, title string")
    topology = run("Write SQL over streams and tables")["clicks_of_members"](titles)
    with TopologyTestDriver(topology, spark=spark) as driver:
        driver.create_input_topic("members").pipe_input("ada", {"plan": "gold"})
        for user in ("ada", "bob"):
            driver.create_input_topic("clicks").pipe_input(user, {"page": "a", "seconds": 1})
        rows = driver.create_output_topic("clicks-of-members").read_rows()
        assert rows == [{"user": "ada", "title": "Alpha", "seconds": 1}]


def test_the_page_s_steps(spark):
    with TopologyTestDriver(run("Write SQL over streams and tables")["dear_and_cheap"](), spark=spark) as driver:
        driver.create_input_topic("bids").pipe_rows([(1, {"price": price}) for price in (5.4, 120.0, 50.0)])
        marked = [(row["price"], row["kind"]) for row in driver.create_output_topic("marked").read_rows()]
        assert sorted(marked) == [(5.0, "cheap"), (120.0, "dear")]
        assert driver.create_output_topic("totals").read_rows()[-1]["ratio"] == 40.0
        assert driver.store("totals") == [{"auction": 1, "bids": 3, "highest": 120.0}]


def test_the_page_s_script_runs(spark, tmp_path):
    file = tmp_path / "pipeline.sql"
    (script,) = sql("Write SQL over streams and tables")
    file.write_text(script)
    topology, settings = run("Write SQL over streams and tables")["of_file"](str(file))
    assert settings == {"num.standby.replicas": "1"}
    with TopologyTestDriver(topology, settings, spark=spark) as driver:
        driver.create_input_topic("users").pipe_input("ada", {"city": "Oslo"})
        for minute in (0, 0, 1, 3):
            driver.create_input_topic("clicks").pipe_input("ada", {"page": "a", "at": f"2026-01-01T00:0{minute}:00Z"})
        rows = driver.create_output_topic("clicks-by-minute", key=String()).read_records()
        assert [(one.key, one.value["minute"][14:16], one.value["clicks"]) for one in rows] == [
            ("Oslo", "00", 2),
            ("Oslo", "01", 1),
        ]
        assert driver.create_output_topic("pages").read_rows()[-1] == {"page": "a", "clicks": 4}


@pytest.mark.long
def test_the_page_s_command_explains_the_script(tmp_path):
    (script,) = sql("Write SQL over streams and tables")
    (tmp_path / "pipeline.sql").write_text(script)
    main = "from sparkrelay.cli import main; main()"
    command = [sys.executable, "-c", main, "sql", "pipeline.sql", "--explain"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300)
    assert "Sink: clicks-by-city-window-to-clicks-by-minute (topic: clicks-by-minute)" in done.stdout


def test_names_with_other_characters_take_backticks(spark):
    builder = StreamsBuilder(spark)
    builder.stream("raw-bids", key=Long("auction"), value=Json("price double"))
    builder.sql("SELECT auction, price FROM `raw-bids` WHERE price > 1").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("raw-bids").pipe_rows([(1, {"price": 1.0}), (2, {"price": 2.0})])
        assert driver.create_output_topic("out").read_rows() == [{"auction": 2, "price": 2.0}]


# -- scripts ----------------------------------------------------------------------------------------------------------

A = "CREATE STREAM a (x BIGINT, t TIMESTAMP) OPTIONS (key 'x');"


def scripted(spark, text, **where):
    builder = StreamsBuilder(spark)
    settings = builder.script(text, **where)
    return builder, settings


def test_a_script_reads_schemas_beside_it_and_writes_by_names(spark, tmp_path):
    amount, user = {"name": "amount", "type": "double"}, {"name": "user", "type": "string"}
    for name, fields in (("order", [amount]), ("copy", [user, amount])):
        schema = {"type": "record", "name": name, "fields": fields}
        (tmp_path / f"{name}.avsc").write_text(json.dumps(schema))
    script = """
        CREATE STREAM orders OPTIONS (key 'user', value 'avro', schema 'order.avsc');
        CREATE GLOBAL TABLE cities (user STRING, city STRING) OPTIONS (key 'user');
        CREATE STREAM copies OPTIONS (key 'user', value 'avro', schema 'copy.avsc');
        CREATE STREAM sums (total DOUBLE, city STRING) OPTIONS (topic 'city-totals', key 'city string');
        INSERT INTO copies SELECT user, amount FROM orders;
        INSERT INTO sums BY NAME
            SELECT city, sum(amount) AS total FROM orders JOIN cities USING (user) GROUP BY city;
        INSERT INTO renamed (who, much) SELECT user, amount FROM orders -- ; no end of a statement
    """
    builder, _ = scripted(spark, script, file=str(tmp_path / "p.sql"))
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("cities").pipe_input("ada", {"city": "Oslo"})
        driver.create_input_topic("orders").pipe_input("ada", {"amount": 2.5})
        assert driver.create_output_topic("copies").read_rows() == [{"user": "ada", "amount": 2.5}]
        (total,) = driver.create_output_topic("city-totals", key=String()).read_records()
        assert (total.key, total.value["total"]) == ("Oslo", 2.5)
        assert driver.create_output_topic("renamed").read_rows() == [{"who": "ada", "much": 2.5}]


@pytest.mark.parametrize(
    ("text", "line", "error"),
    [
        ("SELECT * FROM a", 1, "a query alone leads nowhere"),
        ("DROP TABLE a", 1, "a script takes CREATE STREAM, .*not DropTable"),
        (f"{A}\n\n-- a comment\nINSERT INTO b SELECT y FROM a", 4, "UNRESOLVED_COLUMN"),
        ("CREATE STREAM a (x INT) OPTIONS (foo 'x')", 1, "a has no option 'foo'; OPTIONS are history, key"),
        ("CREATE STREAM a (x INT) USING kafka", 1, "are USING sparkrelay"),
        ("CREATE STREAM a (x INT) PARTITIONED BY (x)", 1, "no partitioning, properties or location"),
        ("CREATE STREAM a (x INT) TBLPROPERTIES ('k' = 'v')", 1, "no partitioning, properties or location"),
        ("CREATE STREAM a (x INT) LOCATION '/tmp'", 1, "no partitioning, properties or location"),
        (f"{A}\n{A}", 2, "a is declared already, at script.sql:1"),
        ("CREATE STREAM a (x DOUBLE) OPTIONS (key 'x');\nINSERT INTO b SELECT * FROM a", 1, "keys are string, int"),
        ("CREATE TABLE a (x INT);\nINSERT INTO b SELECT * FROM a", 1, "needs columns, or a value, and a key"),
        ("CREATE STREAM a (x INT) OPTIONS (value 'xml');\nINSERT INTO b SELECT * FROM a", 1, "must be one of avro"),
        (f"{A}\nINSERT OVERWRITE b SELECT * FROM a", 2, "write INSERT INTO"),
        (f"{A}\nCREATE STREAM b (x INT, y INT);\nINSERT INTO b SELECT x FROM a", 3, "gives 1 columns, x, for 2, x, y"),
        (
            (
                f"{A}\nCREATE STREAM b (x BIGINT, n BIGINT) OPTIONS (outputMode 'complete');\n"
                "INSERT INTO b SELECT x, count(*) FROM a GROUP BY x"
            ),
            3,
            'takes "update" or "append"',
        ),
    ],
)
def test_what_a_script_cannot_hold(spark, text, line, error):
    with pytest.raises(TopologyException, match=rf"script.sql:{line}: .*{error}"):
        scripted(spark, text)
