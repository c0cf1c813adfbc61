"""What we read out of Catalyst through py4j: what plans and expressions are made of.

Column expressions come from PySpark itself, so ``groupBy(F.window("ts", "10 minutes")).agg(F.sum(F.col("a") * 2))``
means what it means there: grouping keys and aggregate arguments become an ordinary projection before the stateful
step, and only the aggregate functions themselves are ours. Refused: column expressions of our own, because they would
never be quite those that users know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, functions as F

from sparkrelay.topology.columns import stable_alternatives

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

__all__ = [
    "as_column",
    "items",
    "jvm",
    "kind",
    "lets_nothing_through",
    "nodes",
    "number_of",
    "pattern",
    "projected_sql",
    "scala_object",
]


def as_column(column: Any) -> Column:
    """Return ``column`` as a Column; a string names one."""
    return column if isinstance(column, Column) else F.col(column)


def projected_sql(projection: DataFrame) -> dict[str, str]:
    """Return each column of a projection as SQL: the same text in every run of the same pipeline.

    ``Column.toString`` would not do: it shows Python functions with the address of an object.
    """
    texts = {}
    for expression in items(projection._jdf.queryExecution().analyzed().expressions()):
        source = expression.child() if kind(expression) == "Alias" else expression
        texts[str(expression.name())] = stable_alternatives(str(source.sql()))
    return texts


def lets_nothing_through(plan: DataFrame) -> bool:
    """Return whether Spark has found that ``plan`` has no rows whatever comes in, as behind ``where(F.lit(False))``.

    It then runs none of the steps before that, in no partition.
    """
    optimized = plan._jdf.queryExecution().optimizedPlan()
    return any(kind(node) == "LocalRelation" and node.data().isEmpty() for node in nodes(optimized))


def nodes(plan: Any) -> Iterator[Any]:
    """Yield a plan or an expression and all that is below it."""
    yield plan
    for child in items(plan.children()):
        yield from nodes(child)


def items(sequence: Any) -> list[Any]:
    """Return what is in a sequence of the JVM's."""
    return [sequence.apply(i) for i in range(sequence.size())]


def kind(node: Any) -> str:
    """Return the name of the class of a plan's node, or of an expression's."""
    return str(node.productPrefix())


def number_of(attribute: Any) -> int:
    """Return Catalyst's number of an attribute."""
    return int(attribute.exprId().id())


def pattern(name: str) -> Any:
    """Return one of Catalyst's tree patterns: every node knows which of them are below it."""
    return getattr(scala_object("trees.TreePattern"), name)()


def scala_object(name: str) -> Any:
    """Return an object of Scala's, by its name behind ``org.apache.spark.sql.catalyst``."""
    package, _, name = name.rpartition(".")
    return getattr(getattr(getattr(jvm().org.apache.spark.sql.catalyst, package), f"{name}$"), "MODULE$")


def jvm() -> Any:
    """Return py4j's view of the live session's JVM."""
    from pyspark import SparkContext  # noqa: PLC0415 - the live context's JVM, not an import-time one

    context = SparkContext._active_spark_context
    assert context is not None, "columns exist only while a SparkContext does"
    view: Any = context._jvm
    return view
