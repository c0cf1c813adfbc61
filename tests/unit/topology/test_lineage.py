"""The tracking of key columns against a small model of what Spark does with names."""

# ruff: noqa: N803 - everybody writes F

from hypothesis import given, settings, strategies as st

from sparkrelay.records.formats import Integer, Json, Long, Raw, String
from sparkrelay.topology import CallSite
from sparkrelay.topology.calls.row_steps import make_step
from sparkrelay.topology.lineage import Lineage

HERE = CallSite("x.py", 1, "f")
KEYED = Lineage.of_source(String("carrier"), Json("origin string"))


def after(lineage, *steps):
    for kind, *args in steps:
        lineage = lineage.after(make_step(kind, tuple(args), HERE))
    return lineage


def kept(lineage, *keys):
    return lineage.locate(keys) is not None


def test_a_source_is_located_by_its_key():
    for key in (String("k"), Raw("k"), Integer("k"), Long("k")):
        assert kept(Lineage.of_source(key, None), "k")
    assert kept(KEYED, "carrier")
    assert kept(KEYED, "origin", "carrier")
    assert kept(KEYED, "kafka.key")
    assert kept(KEYED, "kafka.partition")
    assert not kept(KEYED, "origin")
    assert not kept(KEYED, "key")
    assert not kept(KEYED, "CARRIER")


def test_filling_nulls_loses_the_columns_that_are_filled():
    def filled(value, subset=None):
        step = make_step("fillna", (value,), HERE, {} if subset is None else {"subset": subset})
        return kept(KEYED.after(step), "carrier")

    assert filled(0, ("origin",))
    assert filled({"origin": "x"})
    assert not filled("x", ("Carrier",))
    assert not filled({"carrier": "x"})
    assert not filled("x")
    assert filled(0)
    assert filled(True)
    assert not kept(Lineage.of_repartition(["carrier"]).after(make_step("fillna", (0,), HERE)), "carrier")
    assert kept(after(KEYED, ("dropna",)), "carrier")


def test_a_source_without_formats_has_kafkas_own_columns():
    raw = Lineage.of_source(None, None)
    assert kept(raw, "key")
    assert kept(raw, "partition")
    assert not kept(raw, "value")
    assert not kept(raw, "kafka.key")
    assert kept(Lineage.of_source(None, Json("a int")), "kafka.key")
    assert not kept(Lineage.of_source(None, Json("a int")), "key")


def test_a_message_without_a_key_may_lie_anywhere():
    assert KEYED.locate(["carrier", "origin"]).not_null == (("carrier",),)
    assert KEYED.locate(["kafka.partition"]).not_null == ()
    assert Lineage.of_repartition(["a"]).locate(["a"]).not_null == (("a",),)
    assert Lineage.of_repartition(["a", "b"]).locate(["b", "a"]).not_null == ()


def test_a_repartition_key_is_needed_as_a_whole():
    lineage = Lineage.of_repartition(["a", "b"])
    assert kept(lineage, "a", "b", "c")
    assert not kept(lineage, "a")
    assert not kept(after(lineage, ("drop", "b")), "a", "b")


def test_steps_that_keep_the_key():
    assert kept(after(KEYED, ("where", "origin = 'JFK'"), ("filter", "true")), "carrier")
    assert kept(after(KEYED, ("withColumnRenamed", "carrier", "c")), "c")
    assert kept(after(KEYED, ("select", "*")), "carrier")
    assert kept(after(KEYED, ("select", "origin", "carrier")), "carrier")
    assert kept(after(KEYED, ("select", "kafka")), "kafka.key")
    assert kept(after(KEYED, ("select", "kafka.*")), "key")
    assert kept(after(KEYED, ("select", "kafka.key")), "key")
    assert kept(after(KEYED, ("selectExpr", "origin", "carrier as c")), "c")
    assert kept(after(KEYED, ("selectExpr", "*", "1 as one")), "carrier")
    assert kept(after(KEYED, ("drop", "origin")), "carrier")


def test_steps_that_lose_the_key(F):
    assert not kept(after(KEYED, ("withColumn", "carrier", F.upper("carrier"))), "carrier")
    assert not kept(after(KEYED, ("withColumn", "Carrier", F.upper("carrier"))), "carrier")
    assert not kept(after(KEYED, ("withColumns", {"CARRIER": F.lit("x")})), "carrier")
    assert not kept(after(KEYED, ("withColumnRenamed", "origin", "carrier")), "carrier")
    assert not kept(after(KEYED, ("withColumnRenamed", "Carrier", "c")), "c")
    assert not kept(after(KEYED, ("drop", "carrier")), "carrier")
    assert not kept(after(KEYED, ("drop", F.upper("carrier"))), "carrier")
    assert not kept(after(KEYED, ("select", "origin")), "carrier")
    assert not kept(after(KEYED, ("select", F.col("origin").alias("carrier"))), "carrier")
    assert not kept(after(KEYED, ("selectExpr", "upper(carrier) as carrier")), "carrier")
    assert not kept(after(KEYED, ("transform", lambda rows: rows)), "carrier")


def test_columns_and_their_copies(F):
    assert kept(KEYED, F.col("carrier"))
    assert kept(KEYED, F.col("carrier").alias("c"))
    assert kept(after(KEYED, ("withColumn", "copy", F.col("carrier")), ("drop", "carrier")), "copy")
    assert kept(after(KEYED, ("withColumn", "carrier", F.col("carrier"))), "carrier")
    assert kept(after(KEYED, ("select", F.col("carrier").alias("c"))), "c")
    assert kept(after(KEYED, ("select", F.col("*"))), "carrier")
    # Both at once, so the names change places.
    swapped = after(KEYED, ("withColumns", {"origin": F.col("carrier"), "carrier": F.col("origin")}))
    assert kept(swapped, "origin")
    assert not kept(swapped, "carrier")


NAMES = st.sampled_from(["carrier", "Carrier", "origin", "c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("where")),
        st.tuples(st.just("withColumn"), NAMES, st.one_of(st.none(), NAMES)),
        st.tuples(st.just("withColumnRenamed"), NAMES, NAMES),
        st.tuples(st.just("drop"), NAMES),
        st.tuples(st.just("select"), st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=3)),
        st.tuples(st.just("selectExpr"), st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=3)),
    ),
    max_size=6,
)


def find(columns, name):
    """Resolve a name as Spark does, without regard to case; None if there is not exactly one such column."""
    found = [content for shown, content in columns if shown.lower() == name.lower()]
    return found[0] if len(found) == 1 else None


@given(steps=STEPS, grouped=st.lists(NAMES, min_size=1, max_size=2))
@settings(max_examples=500)
def test_located_groups_hold_the_key_whatever_the_steps_were(F, steps, grouped):
    columns = [("carrier", "the key"), ("origin", "something")]
    lineage = KEYED
    for kind, *args in steps:
        if kind == "where":
            lineage = after(lineage, ("where", "true"))
        elif kind == "withColumn":
            name, copied = args
            content = "something" if copied is None else find(columns, copied)
            if content is None:
                return  # Spark refuses the plan
            lineage = after(lineage, ("withColumn", name, F.upper("origin") if copied is None else F.col(copied)))
            if find(columns, name) is None:
                columns = [*columns, (name, content)]
            else:
                columns = [(name, content) if shown.lower() == name.lower() else (shown, c) for shown, c in columns]
        elif kind == "withColumnRenamed":
            old, new = args
            lineage = after(lineage, ("withColumnRenamed", old, new))
            columns = [(new if shown.lower() == old.lower() else shown, content) for shown, content in columns]
        elif kind == "drop":
            lineage = after(lineage, ("drop", *args))
            columns = [(shown, content) for shown, content in columns if shown.lower() != args[0].lower()]
        else:
            made = [(new, find(columns, old)) for old, new in args[0]]
            if any(content is None for _, content in made):
                return
            if kind == "select":
                lineage = after(lineage, ("select", *(F.col(old).alias(new) for old, new in args[0])))
            else:
                lineage = after(lineage, ("selectExpr", *(f"{old} AS {new}" for old, new in args[0])))
            columns = made
    contents = [find(columns, name) for name in grouped]
    if None not in contents and kept(lineage, *grouped):
        assert "the key" in contents
