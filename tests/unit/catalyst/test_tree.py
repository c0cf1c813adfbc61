# ruff: noqa: N803 - everybody writes F

import pytest
from pyspark.sql import Window

from sparkrelay.catalyst.tree import Column, read_plan


@pytest.fixture
def rows(spark):
    return spark.sql("SELECT 1 AS a, 'x' AS b, array(1, 2) AS c, struct(1 AS n) AS s")


def analyzed(frame):
    return frame._jdf.queryExecution().analyzed()


def plan_of(frame):
    return read_plan(analyzed(frame))


@pytest.mark.parametrize(
    "write",
    [
        lambda r, F: r,
        lambda r, F: r.select("b", F.upper("b").alias("u")),
        lambda r, F: r.where("a > 1").withColumn("d", F.lit(1)),
        lambda r, F: r.groupBy("a").agg(F.sum("a").alias("n"), F.collect_list("b")),
        lambda r, F: r.groupBy(F.upper("b")).count(),
        lambda r, F: r.rollup("a", "b").count(),
        lambda r, F: r.select("a", F.explode("c").alias("e")),
        lambda r, F: r.select("a", F.posexplode_outer("c")),
        lambda r, F: r.withColumn("w", F.row_number().over(Window.partitionBy("a").orderBy("b"))),
        lambda r, F: r.join(r.withColumnRenamed("b", "b2"), "a"),
        lambda r, F: r.alias("x").join(r.alias("y"), F.expr("x.a = y.a"), "left_outer"),
        lambda r, F: r.join(r, "a", "left_semi"),
        lambda r, F: r.join(r, "a", "left_anti"),
        lambda r, F: r.union(r),
        lambda r, F: r.distinct(),
        lambda r, F: r.dropDuplicates(["a"]),
        lambda r, F: r.orderBy("a").limit(3),
        lambda r, F: r.hint("broadcast"),
        lambda r, F: r.observe("seen", F.count("*")),
        lambda r, F: r.withWatermark("t", "1 minute") if "t" in r.columns else r.withColumn("t", F.now()),
        lambda r, F: r.repartition("a"),
        lambda r, F: r.unpivot("b", ["a"], "k", "v"),
    ],
)
def test_columns_are_those_of_catalyst(rows, F, write):
    plan = plan_of(write(rows, F))
    output = plan.java.output()
    theirs = [output.apply(place) for place in range(output.size())]
    assert plan.output == tuple(Column(int(one.exprId().id()), str(one.name())) for one in theirs)


def test_columns_of_with_clauses_and_pipes_are_those_of_catalyst(spark):
    plan = plan_of(
        spark.sql("WITH q AS (SELECT 1 AS a, 2 AS b) SELECT x.a FROM q x JOIN q y USING (b) |> EXTEND 3 AS c")
    )
    assert [column.name for column in plan.output] == ["a", "c"]
    kinds = [node.kind for node in plan.below()]
    assert kinds.count("CTERelationDef") == 1
    assert kinds.count("CTERelationRef") == 2


def test_a_node_of_which_nothing_is_known_has_the_columns_of_the_jvm(spark, tmp_path):
    spark.range(3).write.parquet(str(tmp_path / "ids"))
    for frame in (spark.range(3), spark.read.parquet(str(tmp_path / "ids"))):
        plan = plan_of(frame)
        assert [column.name for column in plan.output] == ["id"]
        assert plan.output[0].number == int(plan.java.output().head().exprId().id())


def test_each_node_is_found_in_the_jvm(rows, F):
    plan = plan_of(rows.where("a > 1").join(rows.select("a"), "a").groupBy("a").count())
    for node in plan.below():
        assert node.java.productPrefix() == node.kind
        assert node.java.children().size() == len(node.children)
        assert node.java.expressions().size() == len(node.expressions)


def test_expressions_are_in_the_order_of_catalyst(rows, F):
    plan = plan_of(rows.groupBy("a", F.upper("b")).agg(F.sum("a").alias("n")))
    java = plan.java.expressions()
    theirs = [java.apply(place).productPrefix() for place in range(java.size())]
    assert [one.kind for one in plan.expressions] == theirs
    assert [one.kind for one in plan.by_field["groupingExpressions"]] == ["AttributeReference", "Upper"]
    assert [one.name for one in plan.by_field["aggregateExpressions"]] == ["a", "upper(b)", "n"]


def test_an_expression_knows_what_it_reads(rows):
    plan = plan_of(rows.selectExpr("a + s.n AS d", "b"))
    (below,) = plan.children
    numbers = {column.name: column.number for column in below.output}
    made, as_it_is = plan.expressions
    assert {*made.references()} == {numbers["a"], numbers["s"]}
    assert [*as_it_is.references()] == [numbers["b"]]
    assert (made.kind, made.name, made.is_attribute) == ("Alias", "d", False)
    assert (as_it_is.name, as_it_is.number, as_it_is.is_attribute) == ("b", numbers["b"], True)
    assert [one.kind for one in made.below()][:3] == ["Alias", "Add", "AttributeReference"]


def test_what_a_subquery_reads_of_the_rows_outside_counts_and_its_nodes_do_not(spark, rows):
    rows.createOrReplaceTempView("rows_of_a_subquery")
    plan = plan_of(
        spark.sql("SELECT (SELECT max(b) FROM rows_of_a_subquery i WHERE i.a = o.a) AS m FROM rows_of_a_subquery o")
    )
    (made,) = plan.expressions
    outer = {column.name: column.number for column in plan.children[0].output}
    assert outer["a"] in {*made.references()}
    assert [len(one.plans) for one in made.below() if one.plans] == [1]
    assert "Aggregate" not in [node.kind for node in plan.below()]


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("inner", "Inner"),
        ("left", "LeftOuter"),
        ("right", "RightOuter"),
        ("full", "FullOuter"),
        ("left_semi", "LeftSemi"),
        ("left_anti", "LeftAnti"),
    ],
)
def test_the_way_of_a_join(rows, F, how, kind):
    plan = plan_of(rows.alias("x").join(rows.alias("y"), F.expr("x.a = y.a"), how))
    (join,) = (node for node in plan.below() if node.kind == "Join")
    assert join.join_type == kind


def test_an_expand_makes_several_rows_of_one(rows, F):
    plan = plan_of(rows.rollup("a", "b").count())
    (expand,) = (node for node in plan.below() if node.kind == "Expand")
    assert len(expand.ways) == 3
    assert {len(way) for way in expand.ways} == {len(expand.output)}


def test_a_generate_names_what_makes_its_rows(rows, F):
    plan = plan_of(rows.select(F.explode("c").alias("e")))
    (generate,) = (node for node in plan.below() if node.kind == "Generate")
    assert generate.generator.kind == "Explode"
    assert [one.name for one in generate.by_field["generatorOutput"]] == ["e"]


def test_a_plan_that_was_read_is_not_read_again_below_another_one(rows, F):
    below = rows.select("a", F.upper("b").alias("u"))
    known = plan_of(below)
    assert read_plan(analyzed(below), known) is known
    above = below.where("u like 'x/%' escape '/'").select("u")
    plan = read_plan(analyzed(above), known)
    assert plan.children[0].children[0] is known
    assert [node.text for node in plan.below()] == [node.text for node in plan_of(above).below()]
    assert plan.java.toString() == analyzed(above).toString()
    assert plan.children[0].java.toString() == analyzed(above).child().toString()


@pytest.mark.parametrize(
    "write", [lambda r: r.crossJoin(r), lambda r: r.select("b")], ids=["behind a fork", "not in it"]
)
def test_a_plan_that_another_one_is_not_made_of_alone_changes_nothing(rows, write):
    frame = write(rows)
    plan = read_plan(analyzed(frame), plan_of(rows.select("a")))
    assert [node.text for node in plan.below()] == [node.text for node in plan_of(frame).below()]
