"""Everything that is written with one builder, in order."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column
from pyspark.sql.types import StructField, StructType

from sparkrelay.catalyst.frames import (
    analyzed,
    frame_of,
    leaf_frame,
    project,
    with_children,
    without_leaves,
)
from sparkrelay.catalyst.jvm import catalyst, catalyst_object, items, java, seq
from sparkrelay.catalyst.query_errors import query_errors_unlogged
from sparkrelay.client.topic_schemas import TopicSchemas
from sparkrelay.errors import SparkRelayError, TopologyException
from sparkrelay.topology.rows import Leaf, Rows, Written
from sparkrelay.topology.schemas import without_kafka

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from sparkrelay.catalyst.tree import Plan
    from sparkrelay.config import StreamsConfig
    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.nodes import AggregationNode, AnyNode, StoredTable
    from sparkrelay.topology.rows import Node
    from sparkrelay.topology.spread import Spread

_NodeT = TypeVar("_NodeT", bound="Node")

#: Spark's metadata of a column that a watermark goes by.
DELAY = "spark.watermarkDelayMs"
#: Spark's errors, of which it does not say what to write instead -> that.
_INSTEAD = {
    "AMBIGUOUS_REFERENCE": (
        ". Two columns have that name, or names that differ in case only, which are one to Spark: give one of them "
        "another name with alias(), as in groupBy(F.col('s.a').alias('s_a')) beside a column a, or drop() it"
    ),
    "INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY": (
        ". Join with that stream by a range of time, such as with LEFT SEMI JOIN; or keep a table of it, to_table() or "
        "GROUP BY, and ask that"
    ),
}


class Record:
    """What was written.

    Attributes:
        spark: the session in which it is analysed.
        nodes: of the tree, each behind those that it follows.
        stored: a table, and steps behind it -> the table that holds its rows behind them, for those who look into it.
        open: calls that must be followed by others -> what is missing, in words.
        views: what queries call rows.
        relations: options of a ``readStream`` -> the rows of its source.
        shared: output mode, and a stateful step of a ``readStream`` as text -> the rows behind it.
    """

    def __init__(self, spark: SparkSession, config: StreamsConfig | None = None) -> None:
        self.spark = spark
        self._config = config
        self.nodes: list[AnyNode] = []
        self.stored: dict[tuple[StoredTable, tuple[str, ...], tuple[str, ...]], AggregationNode] = {}
        self.open: dict[object, str] = {}
        self.views: dict[str, Rows] = {}
        self.relations: dict[tuple[tuple[str, str], ...], Rows] = {}
        self.shared: dict[tuple[str, str], Rows] = {}
        self._leaves: list[Node] = []
        #: What calls have made, and nothing has used yet.
        self.unused: dict[Rows, Written] = {}

    @functools.cached_property
    def schemas(self) -> TopicSchemas:
        """The registry's schemas.

        Raises:
            ConfigException: the builder has no settings of one.
        """
        return TopicSchemas(self._config, "set it, and give it to the builder, StreamsBuilder(config=config)")

    def node(self, leaf: int) -> Node:
        """Return the node that a leaf stands for."""
        return self._leaves[leaf]

    def source_view(self, name: str | None, topics: str | Sequence[str], rows: Rows) -> None:
        """Have queries call a source by its name, or its topic; not where another one is called so already."""
        called = name if name is not None else topics if isinstance(topics, str) else next(iter(topics))
        self.views.setdefault(called, rows)

    def end(self, node: AnyNode) -> None:
        """Write down a node that nothing follows."""
        self._use(node)
        self.nodes.append(node)

    def add(
        self,
        node: _NodeT,
        output: Any,
        spread: Spread,
        *,
        streaming: bool = True,
        timed: bool = True,
        names: Sequence[str] | None = None,
    ) -> _NodeT:
        """Write down a node, with a leaf for its rows.

        Args:
            node: the node.
            output: attributes of the rows that come out of it, in the JVM.
            spread: which of them decide in which task a row is.
            streaming: False for the rows of a table.
            timed: False where the rows' event times are new, so that a watermark has to be said anew.
            names: of its columns, where they are not those of the attributes; no two are equal.
        """
        self._use(node)
        fields = columns_of(output)
        output = _each_once(output, [field.name for field in fields])
        if not timed:
            output = _untimed(output, fields)
        frame = leaf_frame(output, len(self._leaves), self.spark, streaming=streaming)
        names = unique([field.name for field in fields] if names is None else names)
        columns = [StructField(name, field.dataType, field.nullable) for name, field in zip(names, fields, strict=True)]
        node.leaf = Leaf(len(self._leaves), frame, StructType(columns))
        node.spread = spread
        self._leaves.append(node)
        self.nodes.append(node)
        return node

    def _use(self, node: AnyNode) -> None:
        for rows in node.inputs:
            self.use(rows)

    def use(self, rows: Rows) -> None:
        """Note that rows lead somewhere, and with them all that they are made of.

        Raises:
            TopologyException: something has to follow them first.
        """
        if rows.pending is not None:
            raise TopologyException(rows.pending)
        self.led_on(rows)

    def led_on(self, rows: Rows) -> None:
        """Note that something follows rows."""
        for made in [made for made in self.unused if made.written and made.written[-1] in rows.written]:
            del self.unused[made]


def begin(node: Node) -> Rows:
    """Return the rows that come out of a node."""
    return Rows(node, node.leaf.frame)


def columns_of(output: Any) -> StructType:
    """Return the columns of attributes in the JVM."""
    text = str(catalyst_object("types.DataTypeUtils").fromAttributes(output).json())
    return StructType.fromJson(json.loads(text))


def unique(names: Iterable[str]) -> list[str]:
    """Return names no two of which are equal, whatever their case: a later one gets a number."""
    taken: set[str] = set()
    made = []
    for name in names:
        free = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
        found = next(one for one in free if one.lower() not in taken)
        taken.add(found.lower())
        made.append(found)
    return made


def attribute(rows: Rows, number: int) -> Any:
    """Return the attribute of a column, in the JVM."""
    place = next(place for place, column in enumerate(rows.columns) if column.number == number)
    return analyzed(rows.frame).output().apply(place)


def as_column(expression: Any) -> Column:
    """Return an analysed expression as a Column of PySpark's."""
    return Column(java("org.apache.spark.sql.classic.ExpressionUtils").column(expression))


def with_rows(rows: Rows, frame: DataFrame, *, unsaid: int = 0) -> Rows:
    """Return rows that a step of ours has made of others; ``unsaid`` are the nodes of its plan that need no words."""
    return Rows(rows.node, frame, rows.written, unsaid=unsaid, known=rows.known_plan)


def projected(rows: Rows, columns: Iterable[Any], *, unsaid: int = 0) -> Rows:
    """Return rows with other columns, which are made of theirs in the JVM."""
    plan = project(columns, analyzed(rows.frame))
    return with_rows(rows, frame_of(plan, rows.frame.sparkSession), unsaid=unsaid)


def only(rows: Rows, numbers: Collection[int]) -> Rows:
    """Return rows with the columns of these numbers alone."""
    output = items(analyzed(rows.frame).output())
    kept = [one for one, column in zip(output, rows.columns, strict=True) if column.number in numbers]
    return rows if len(kept) == len(output) else projected(rows, kept)


def without_kafka_columns(rows: Rows) -> Rows:
    """Return rows without Kafka's own columns."""
    shown = without_kafka(rows.schema).fields
    return only(rows, {column.number for column in rows.columns if column.field in shown})


def named(rows: Rows, *more: Column) -> Rows:
    """Return rows of which no two columns have one name, with further ones behind them."""
    names = [column.name for column in rows.columns]
    if not more and names == unique(names):
        return rows
    output = analyzed(rows.frame).output()
    columns = [as_column(output.apply(place)).alias(name) for place, name in enumerate(unique(names))]
    return with_rows(rows, rows.frame.select(*columns, *more), unsaid=1)


def filtered(rows: Rows, *not_null: int) -> Rows:
    """Return rows without those that have a null in one of these columns."""
    if not not_null:
        return rows
    plan = analyzed(rows.frame)
    for number in not_null:
        condition = catalyst("expressions.IsNotNull", attribute(rows, number))
        plan = catalyst("plans.logical.Filter", condition, plan)
    return with_rows(rows, frame_of(plan, rows.frame.sparkSession))


def over(below: Rows, steps: Sequence[tuple[Plan, int]]) -> Rows:
    """Return rows behind row-wise nodes, given from the top down, each with which child the rows come from."""
    if not steps:
        return below
    nodes = [*(node for node, _ in steps), None if below.known_plan is None else below.plan]
    if all(node.children[place] is child for (node, place), child in zip(steps, nodes[1:], strict=True)):
        top = steps[0][0]
        return Rows(below.node, frame_of(top.java, below.frame.sparkSession), below.written, known=top)
    plan = analyzed(below.frame)
    for node, place in reversed(steps):
        children = [child.java for child in node.children]
        children[place] = plan
        plan = with_children(node.java, children)
    return with_rows(below, frame_of(plan, below.frame.sparkSession))


def renumbered(output: Any) -> Any:
    """Return the attributes with new numbers."""
    return seq(one.newInstance() for one in items(output))


def _each_once(output: Any, names: Sequence[str]) -> Any:
    """Return attributes of which no two have one number."""
    if len(names) == int(output.distinct().size()):
        return output
    seen, made = set(), []
    for one in items(output):
        number = int(one.exprId().id())
        made.append(one.newInstance() if number in seen else one)
        seen.add(number)
    return seq(made)


def _untimed(output: Any, fields: StructType) -> Any:
    for place, field in enumerate(fields):
        if DELAY in (field.metadata or {}):
            empty = java("org.apache.spark.sql.types.Metadata").empty()
            output = output.updated(place, output.apply(place).withMetadata(empty))
    return output


@contextlib.contextmanager
def spark_errors(call_site: CallSite | str) -> Iterator[None]:
    """Put the user's line in front of Spark's own complaint."""
    try:
        with query_errors_unlogged():
            yield
    except PySparkException as error:
        # Of an error that is not Spark's own, such as a requirement of the JVM's, there is no message.
        message = without_leaves(next(iter((error.getMessage() or str(error)).splitlines()), repr(error)))
        condition = error.getCondition() if isinstance(error, AnalysisException) else None
        raise TopologyException(f"{call_site}: {message}{_INSTEAD.get(condition or '', '')}") from error
    except Py4JError as error:
        # What PySpark has no error of its own for: behind the JVM's class stand its stack's frames.
        cause = next((line for line in str(error).splitlines() if line.startswith(": ")), ": the arguments do not fit")
        raise TopologyException(f"{call_site}{cause}") from error
    except SparkRelayError:
        raise
    except (TypeError, ValueError, ArithmeticError, AttributeError, AssertionError, LookupError) as error:
        raise TopologyException(f"{call_site}: {error}") from error
