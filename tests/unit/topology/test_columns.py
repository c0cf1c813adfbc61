# ruff: noqa: N803 - everybody writes F

import functools

import pytest
from hypothesis import given, strategies as st

from sparkrelay.topology.columns import (
    argument_text,
    column_path,
    expression_path,
    is_column,
    is_star,
    literal_of_now,
    made_up_seed,
    output_name,
    parse_path,
    quoted,
    stable_alternatives,
    stable_text,
)


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4))
def test_a_quoted_path_reads_as_itself(parts):
    assert parse_path(quoted(tuple(parts))) == tuple(parts)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("carrier", ("carrier",)),
        ("my column", ("my column",)),
        ("kafka.key", ("kafka", "key")),
        ("`a.b`", ("a.b",)),
        ("a.`b.c`", ("a", "b.c")),
        ("", None),
        (".a", None),
        ("a.", None),
        ("a..b", None),
        ("`a", None),
        ("a`b`", None),
    ],
)
def test_names_are_read_as_spark_reads_them(text, path):
    assert parse_path(text) == path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("carrier", (("carrier",), "carrier")),
        (" carrier AS c ", (("carrier",), "c")),
        ("carrier c", (("carrier",), "c")),
        ("kafka.key", (("kafka", "key"), "key")),
        ("`a b` as `c d`", (("a b",), "c d")),
        ("upper(carrier)", (None, None)),
        ("carrier + 1", (None, None)),
        ("null as carrier", (None, None)),
        ("1", (None, None)),
        ("'carrier'", (None, None)),
    ],
)
def test_sql_text_that_names_a_column_is_recognised(text, expected):
    assert expression_path(text) == expected


def test_only_columns_are_columns(F):
    assert is_column(F.col("a"))
    assert not any(is_column(value) for value in ("a", 1, None, object(), dict, lambda row: row))


def test_a_column_is_plain_or_an_expression(F):
    assert column_path(F.col("a")) == ("a",)
    assert column_path(F.col("kafka.key")) == ("kafka", "key")
    assert column_path(F.col("a").alias("b")) == ("a",)
    assert column_path(F.expr("a")) == ("a",)
    assert column_path(F.expr("a as b")) is None
    assert column_path(F.expr("a + 1")) is None
    assert column_path(F.upper("a")) is None
    assert column_path(F.lit("a")) is None
    assert column_path(F.col("a").field) is None
    assert column_path(F.col("*")) is None
    assert column_path("*") is None
    assert column_path(3) is None
    assert column_path("kafka.key") == ("kafka", "key")


def test_names_of_results_are_sparks(F):
    assert output_name("kafka.key") == "key"
    assert output_name(F.col("a").alias("b")) == "b"
    assert output_name(F.upper("a")) == "upper(a)"
    assert output_name(F.function("+")("a", F.lit(1))) == "(a + 1)"
    assert output_name(F.window("time", "1 day")) == "window"
    assert output_name(F.function("concat")("a", F.lit("b c"))) == "concat(a, b c)"
    assert output_name(F.isNull("a")) is None
    assert output_name(F.upper(F.isNull("a"))) is None
    assert output_name(F.expr("a + 1")) is None
    assert output_name(F.function("f")(F.lit(1.5))) is None
    assert output_name(F.function("f")(F.lit(True))) == "f(true)"
    assert output_name(3) is None


def test_stars(F):
    assert is_star("*")
    assert is_star(F.col("*"))
    assert not is_star("kafka.*")
    assert not is_star(F.col("a"))


def test_what_differs_between_processes_is_not_in_the_text():
    assert stable_text("rand(2528231429131301907L)") == stable_text("rand(-12L)") == "rand(seed)"
    assert stable_text("shuffle(split(a), 2915496114871525745L)") == "shuffle(split(a), seed)"
    assert stable_text("transform(arr, x_17 -> +(x_17, 1))") == "transform(arr, x -> +(x, 1))"
    assert stable_text("amount_17") == "amount_17"
    argument = (
        "columnnodeexpression(UnresolvedAttribute(List(x),None,false,Origin(None,None,Some(a.py:{line}),None,None,"
        "None,None,Some([Ljava.lang.StackTraceElement;@{hash}),Some((col,b.py:3)),None)))"
    )
    first, second = (
        stable_text(f"half({argument.format(line=line, hash=hash_)})")
        for line, hash_ in ((1, "6357981c"), (2, "5b73f462"))
    )
    assert first == second == "half(x)"


def test_arguments_as_people_read_them(F):
    def on_time(rows):
        return rows

    class Callable:
        def __call__(self, rows):
            return rows

    assert argument_text('say "hé"') == '"say \\"hé\\""'
    assert argument_text(["a", F.col("b")]) == '["a", b]'
    assert argument_text({"a": F.upper("b")}) == '{"a": upper(b)}'
    assert argument_text(on_time) == "on_time"
    assert argument_text(len) == "len"
    assert argument_text(Callable()) == "Callable"
    assert argument_text(functools.partial(on_time)) == "partial"
    assert argument_text(7) == "7"


def test_a_seed_that_nobody_wrote(F):
    rand, shuffle, randstr = F.function("rand"), F.function("shuffle"), F.function("randstr")

    def seed(text):
        column = F.lit(0)
        column._jc.node().text = text
        return column

    made_up = seed("-5734387406330073174L")
    assert made_up_seed(rand(made_up)) == "rand"
    assert made_up_seed(F.function("*")(F.function("uuid")(made_up), F.lit(2)).alias("a")) == "uuid"
    assert made_up_seed(shuffle(F.function("split")("a", "b"), made_up)) == "shuffle"
    assert made_up_seed(randstr(F.lit(3), made_up)) == "randstr"
    assert made_up_seed(rand(seed("42L"))) is None
    assert made_up_seed(F.function("*")(rand(seed("42L")), seed("10000000000L"))) is None
    assert made_up_seed(F.function("brand")(made_up)) is None
    assert made_up_seed(F.expr("rand()")) is None
    assert made_up_seed("rand(5734387406330073174L)") is None


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("day = date'today'", "date'today'"),
        ("at > TIMESTAMP 'yesterday UTC' or a", "TIMESTAMP 'yesterday UTC'"),
        ('at > timestamp_ntz"now"', 'timestamp_ntz"now"'),
        ("at > timestamp'18:00'", "timestamp'18:00'"),
        ("at > timestamp 'T8:00:00 UTC'", "timestamp 'T8:00:00 UTC'"),
        ("day = date'2026-01-01'", None),
        ("at = timestamp'2026-01-01 18:00'", None),
        ("day = date'epoch'", None),
        ("birthdate 'today'", None),
        ("to_date(day) > current_date()", None),
    ],
)
def test_literals_of_the_time_at_which_they_are_read(F, text, literal):
    assert literal_of_now(text) == literal_of_now(F.expr(text)) == literal
    assert literal_of_now(3) is None


@pytest.mark.parametrize(
    "text",
    [
        "=(ref, 'order #17')",
        "concat(a, 'user@cafe at 0x12')",
        ">(id, 1234567890123456789L)",
        "(id > -1234567890123456789L)",
        "shuffle(split(a), 42L)",
        "brand(2528231429131301907L)",
        "=(a, 'rand(2528231429131301907L)')",
        "=(a, 'Origin(x)')",
        "=(a, 'x_1 -> y')",
        "`a#1`",
        "=(a, 'it\\'s #1')",
        '=(a, "it\'s #1")',
    ],
)
def test_what_users_wrote_stays(text):
    assert stable_text(text) == text


def test_only_names_of_lambdas_lose_their_numbers():
    text = "aggregate(arr_1, n_2, (x_17, y_18) -> +(x_17, *(y_18, rate_3)), acc_19 -> acc_19)"
    assert stable_text(text) == "aggregate(arr_1, n_2, (x, y) -> +(x, *(y, rate_3)), acc -> acc)"
    assert (
        stable_text("transform(shuffle(arr_1, 2915496114871525745L), x_2 -> x_2)")
        == "transform(shuffle(arr_1, seed), x -> x)"
    )


@pytest.mark.parametrize("stable", [stable_text, stable_alternatives])
def test_what_is_looked_for_in_a_set_comes_in_one_order(stable):
    assert stable("in(x, 'b', 'a, c', 'a')") == stable("in(x, 'a', 'b', 'a, c')") == "in(x, 'a', 'a, c', 'b')"
    assert stable("(upper(x) IN ('b', 'a')) AND (n IN (3, 1))") == "(upper(x) IN ('a', 'b')) AND (n IN (1, 3))"
    assert stable("in(in(x, 2, 1), f(2, 1), a)") == "in(in(x, 1, 2), a, f(2, 1))"
    assert stable("(x IN (')', '('))") == "(x IN ('(', ')'))"
    assert stable("min(b, a)") == "min(b, a)"
    assert stable("in(x") == "in(x"


def test_sets_are_written_in_one_order(F):
    words = {"b", "a", "c"}
    assert argument_text(words) == argument_text(frozenset(words)) == '{"a", "b", "c"}'
    assert argument_text([{2, 1}, set()]) == "[{1, 2}, {}]"
