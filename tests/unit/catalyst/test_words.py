"""Expressions in words: short where people know a sign, the same in every process, and others for other values."""

import pytest
from pyspark.sql import functions

from sparkrelay.catalyst.tree import read_plan
from sparkrelay.catalyst.words import quoted, type_words, words

COLUMNS = (
    "a int, l bigint, d double, text string, time timestamp, day date, local timestamp_ntz, dec decimal(10,2), "
    "flag boolean, items array<int>, more map<string,int>, s struct<n:int,`odd name`:string>, bytes binary, "
    "`odd name` int"
)


@pytest.fixture(scope="module")
def rows(spark):
    return spark.createDataFrame([], COLUMNS)


@pytest.fixture(scope="module")
def said(rows):
    def said(column, names=None):
        frame = rows.select(functions.expr(column) if isinstance(column, str) else column)
        (one,) = read_plan(frame._jdf.queryExecution().analyzed()).expressions
        return words(one.children[0] if one.kind == "Alias" else one, names)

    return said


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("a", "a"),
        ("`odd name`", "`odd name`"),
        ("a + 1", "a + 1"),
        ("(a + 1) * 2", "(a + 1) * 2"),
        ("a - (a - 1)", "a - (a - 1)"),
        ("-a % 3", "-a % 3"),
        ("-(a + 1)", "-(a + 1)"),
        ("a > 1 AND NOT flag", "(a > 1) AND (NOT flag)"),
        ("NOT (a > 1 OR flag)", "NOT ((a > 1) OR flag)"),
        ("(a IS NULL) = flag", "(a IS NULL) = flag"),
        ("text IS NOT NULL", "text IS NOT NULL"),
        ("a <=> 1", "a <=> 1"),
        ("a & 1 | 2 ^ 3", "(a & 1) | (2 ^ 3)"),
        ("CASE WHEN a > 1 THEN 'x' WHEN a > 2 THEN 'y' ELSE 'z' END", None),
        ("CASE WHEN a > 1 THEN 'x' END", None),
        ("CAST(a AS bigint)", None),
        ("CAST(dec AS decimal(5,1))", None),
        ("s.n", "s.n"),
        ("s.`odd name`", "s.`odd name`"),
        ("'it''s'", "'it''s'"),
        ("''", "''"),
        ("NULL", "NULL"),
        ("true", "true"),
        ("1L", "bigint '1'"),
        ("1.5D", "double '1.5'"),
        ("date'2026-01-01'", "date '2026-01-01'"),
        ("upper(trim(text))", "upper(trim(text))"),
        ("array(a, 2)", "array(a, 2)"),
        ("map('a', a)", "map('a', a)"),
        ("named_struct('n', a)", "named_struct('n', a)"),
        ("substring(text, 1, 2)", "substring(text, 1, 2)"),
        ("transform(items, x -> x + a)", "array_transform(items, lambda_function(x1 + a, x1))"),
        ("rand(3)", "rand()"),
        ("randn()", "randn()"),
        ("uuid()", "uuid()"),
    ],
)
def test_an_expression_reads_like_sql(said, expression, text):
    assert said(expression) == (expression if text is None else text)


def test_values_that_are_compared_with_come_in_one_order(said):
    """That of a Python set is another in each process."""
    assert said("a IN (3, 1, 2)") == said("a IN (2, 3, 1)") == "a IN (1, 2, 3)"
    assert said("text IN ('b', 'a')") == "text IN ('a', 'b')"
    assert said("a IN (1, 2)") != said("a IN (1, 3)")


def test_an_aggregate_says_what_it_leaves_out(rows):
    def said(text):
        frame = rows.groupBy("a").agg(functions.expr(text).alias("made"))
        *_, one = read_plan(frame._jdf.queryExecution().analyzed()).expressions
        return words(one)

    assert said("sum(l)") == "sum(l) AS made"
    assert said("avg(d)") == "avg(d) AS made"
    assert said("count(*)") == "count(1) AS made"
    assert said("count(DISTINCT text)") == "count(DISTINCT text) AS made"
    assert said("sum(l) FILTER (WHERE a > 1)") == "sum(l) FILTER (WHERE a > 1) AS made"


def test_columns_may_be_called_otherwise(rows):
    plan = read_plan(rows.selectExpr("a + l AS made")._jdf.queryExecution().analyzed())
    (made,) = plan.expressions
    number = next(column.number for column in plan.children[0].output if column.name == "a")
    assert words(made, {number: "upper(who)"}) == "CAST(upper(who) AS bigint) + l AS made"
    assert words(made.children[0], {number: "b + 1"}, inside=True) == "(CAST(b + 1 AS bigint) + l)"


def test_variables_of_lambdas_have_numbers_of_their_own(said):
    """Spark numbers them as it goes."""
    one, again = (said("aggregate(items, 0, (m, x) -> m + x)") for _ in range(2))
    assert one == again
    assert "lambda_function(x1 + x2, x1, x2)" in one
    assert said("transform(items, (x, i) -> x - i)") != said("transform(items, (x, i) -> i - x)")


def test_a_python_function_is_called_by_its_name(said):
    def shout(text):
        return text

    assert said(functions.udf(shout)("text")) == "shout(text)"


def test_the_time_zone_is_said_where_it_makes_a_difference(spark, said):
    before = spark.conf.get("spark.sql.session.timeZone")
    zoned = ["CAST(text AS timestamp)", "CAST(time AS date)", "date_format(time, 'yyyy')", "hour(time)"]
    there = {text: said(text) for text in zoned}
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        for text in zoned:
            assert said(text) == there[text].replace(before, "Asia/Tokyo")
            assert said(text) != there[text]
        assert said("CAST(a AS bigint)") == "CAST(a AS bigint)"
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("CAST(text AS int)", "try_cast(text AS int)"),
        ("element_at(more, 'x')", "try_element_at(more, 'x')"),
        ("a + 1", "try_add(a, 1)"),
        ("d / 2D", "try_divide(d, 2D)"),
        ("to_date(text)", "to_date(text, 'yyyy')"),
        ("to_timestamp(text)", "try_to_timestamp(text)"),
        ("from_json(text, 'a int')", "from_json(text, 'b int')"),
        ("from_json(text, 'a int')", "from_json(text, 'a int', map('mode', 'FAILFAST'))"),
        ("to_json(s)", "to_json(s, map('ignoreNullFields', 'false'))"),
        ("from_csv(text, 'a int')", "from_csv(text, 'a int', map('sep', ';'))"),
        ("text LIKE 'a!%' ESCAPE '!'", "text LIKE 'a!%'"),
        ("text LIKE 'a%'", "text ILIKE 'a%'"),
        ("sort_array(items)", "sort_array(items, false)"),
        ("array_sort(items)", "array_sort(items, (x, y) -> y - x)"),
        ("substring(text, 1, 2)", "substring(text, 2, 1)"),
        ("concat_ws(',', text, 'x')", "concat_ws(';', text, 'x')"),
        ("round(d, 1)", "round(d, 2)"),
        ("round(d, 1)", "bround(d, 1)"),
        ("a", "l"),
        ("1", "1L"),
        ("1", "'1'"),
        ("NULL", "'NULL'"),
        ("x'00ff'", "x'00fe'"),
        ("interval 1 hour", "interval 2 hours"),
        ("time + interval 1 hour", "time - interval 1 hour"),
        ("a BETWEEN 1 AND 3", "a BETWEEN 1 AND 4"),
        ("a - l", "l - a"),
        ("items[0]", "items[1]"),
        ("more['x']", "more['y']"),
        ("s.n", "struct(1 AS n).n"),
        ("date_trunc('hour', time)", "date_trunc('day', time)"),
        ("rank() OVER (PARTITION BY a ORDER BY l)", "rank() OVER (PARTITION BY a ORDER BY l DESC)"),
        ("regexp_replace(text, 'a', 'b')", "regexp_replace(text, 'a', 'c')"),
        ("sequence(a, 3)", "sequence(a, 3, 2)"),
        ("hash(text)", "xxhash64(text)"),
        ("split(text, ',')", "split(text, ',', 2)"),
    ],
)
def test_what_makes_a_difference_to_a_value_is_said(said, one, other):
    assert said(one) != said(other)


@pytest.mark.parametrize("expression", ["x'00ff'", "text LIKE 'a'", "hash(bytes, x'01')", "a BETWEEN 1 AND l"])
def test_words_are_the_same_each_time(said, expression):
    assert said(expression) == said(expression)


def test_bytes_are_said_as_they_are(said):
    """Their array's own text is another in each process."""
    assert "00ff" in said("x'00ff'").lower()


@pytest.mark.parametrize(
    ("name", "text"), [("a", "a"), ("A_1", "A_1"), ("1a", "`1a`"), ("a b", "`a b`"), ("a`b", "`a``b`"), ("", "``")]
)
def test_names_are_quoted_where_sql_would_not_read_them(name, text):
    assert quoted(name) == text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("integer", "int"),
        ("long", "bigint"),
        ("decimal(10,2)", "decimal(10,2)"),
        ({"type": "array", "elementType": "long", "containsNull": True}, "array<bigint>"),
        ({"type": "map", "keyType": "string", "valueType": "short", "valueContainsNull": True}, "map<string,smallint>"),
        (
            {"type": "struct", "fields": [{"name": "a", "type": "byte"}, {"name": "b", "type": "string"}]},
            "struct<a:tinyint,b:string>",
        ),
    ],
)
def test_types_are_said_as_spark_says_them(given, text):
    assert type_words(given) == text
