"""What we read out of Catalyst through py4j: what plans and expressions are made of.

Column expressions come from PySpark itself, so ``groupBy(F.window("ts", "10 minutes")).agg(F.sum(F.col("a") * 2))``
means what it means there: grouping keys and aggregate arguments become an ordinary projection before the stateful
step, and only the aggregate functions themselves are ours. Refused: column expressions of our own, because they would
never be quite those that users know.
"""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.types import NullType, StructField, StructType

from sparkrelay.topology.columns import quoted, stable_alternatives

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from pyspark.sql.types import DataType

_T = TypeVar("_T")

#: Nodes that have one child, and what has none: nobody need ask for their number.
_OF_ONE: Final = frozenset(
    {
        "Alias",
        "Cast",
        "Expand",
        "Filter",
        "Generate",
        "IsNotNull",
        "MapInArrow",
        "MapInPandas",
        "Project",
        "SubqueryAlias",
    }
)
_LEAVES: Final = frozenset({"AttributeReference", "Literal", "LocalRelation", "LogicalRDD", "Range"})
#: What stands behind the name in an attribute's text: its number, and what Catalyst says of longs and watermarks.
_NUMBER: Final = re.compile(r"#(\d+)L?(?:-T\d+ms)?(?:\n|\Z)")


class Attribute(NamedTuple):
    """A column of a plan's: Catalyst's number of it, and its name."""

    number: int
    name: str


class _Remembered(Generic[_T]):
    """A property that is found out once for each node.

    Not ``functools.cached_property``: until Python 3.12 all nodes share one lock for each property, and properties ask
    for one another, so threads that compile at the same time would wait for one another for ever.
    """

    def __init__(self, find: Callable[[Any], _T]) -> None:
        self._find = find
        self.__doc__ = find.__doc__

    def __get__(self, node: Any, _: type | None = None) -> _T:
        # From now on it is found in the node itself.
        found = node.__dict__[self._find.__name__] = self._find(node)
        return found


class Node:
    """A plan node or expression that caches its properties: reading one takes several JVM calls."""

    def __init__(self, java: Any, kind: str | None = None) -> None:
        self.java = java
        #: Of its columns, where they are known.
        self.names: list[str] | None = None
        if kind is not None:
            self.__dict__["kind"] = kind

    @_Remembered
    def kind(self) -> str:
        """The name of its class."""
        return kind(self.java)

    @_Remembered
    def children(self) -> tuple[Node, ...]:
        """What is right below it."""
        if self.kind in _LEAVES:
            return ()
        return tuple(map(Node, [self.java.child()] if self.kind in _OF_ONE else items(self.java.children())))

    @_Remembered
    def output(self) -> list[Attribute]:
        """The columns of a plan's node."""
        return attributes(self.java.output(), self.names)

    @_Remembered
    def number(self) -> int:
        """Catalyst's number of an attribute."""
        return number_of(self.java)

    @_Remembered
    def references(self) -> list[Attribute]:
        """The columns that it reads."""
        if self.kind == "AttributeReference":
            return [Attribute(self.number, str(self.java.name()))]
        if self.kind in _LEAVES:
            return []
        return attributes(self.java.references().toSeq())

    @_Remembered
    def aliases(self) -> dict[int, Node]:
        """Number of each column that a plan's node gives a name -> that expression and its name."""
        if self.kind == "Project":
            # All others are columns as they were.
            given = {number for number, _ in self.children[0].output}
            listed = self.java.projectList()
            new = ((index, number) for index, (number, _) in enumerate(self.output) if number not in given)
            return {number: Node(listed.apply(index), "Alias") for index, number in new}
        return {one.number: one for one in self.expressions if one.kind == "Alias"}

    @_Remembered
    def expressions(self) -> tuple[Node, ...]:
        """What a plan's node is made of, but for columns as they were."""
        if self.kind == "Project":
            return tuple(self.aliases.values())
        if self.kind in _LEAVES:
            return ()
        listed = self.java.expressions()
        # Of a function over all rows, the others are its columns.
        return tuple(map(Node, [listed.apply(0)] if self.kind == "MapInArrow" else items(listed)))

    def below(self) -> Iterator[Node]:
        """Yield the node and all that is below it."""
        yield self
        for child in self.children:
            yield from child.below()


_analyzed: WeakKeyDictionary[DataFrame, Node] = WeakKeyDictionary()
_optimized: WeakKeyDictionary[DataFrame, Node] = WeakKeyDictionary()


def analyzed(rows: DataFrame) -> Node:
    """Return the plan of a DataFrame as it was analysed."""
    if (known := _analyzed.get(rows)) is None:
        known = _analyzed[rows] = Node(rows._jdf.queryExecution().analyzed())
        known.names = rows.schema.names
    return known


def optimized(rows: DataFrame) -> Node:
    """Return the plan of a DataFrame as Spark has optimised it."""
    if (known := _optimized.get(rows)) is None:
        known = _optimized[rows] = Node(rows._jdf.queryExecution().optimizedPlan())
    return known


def attributes(sequence: Any, names: list[str] | None = None) -> list[Attribute]:
    """Return the attributes in a sequence of the JVM's, in as many calls for a hundred of them as for one.

    Args:
        sequence: the sequence.
        names: theirs, where they are known.
    """
    if names is None:
        fields = json.loads(scala_object("types.DataTypeUtils").fromAttributes(sequence).json())["fields"]
        names = [str(field["name"]) for field in fields]
    found = numbered(str(sequence.mkString("\n")), names)
    return [Attribute(number_of(one), str(one.name())) for one in items(sequence)] if found is None else found


def numbered(text: str, names: list[str]) -> list[Attribute] | None:
    """Return the attributes of which a text has one a line, as ``a#12L``; None: they are shown in another way.

    Args:
        text: the text.
        names: theirs. A name may have anything in it, so that only who knows it sees where it ends.
    """
    found, at = [], 0
    for name in names:
        match = _NUMBER.match(text, at + len(name)) if text.startswith(name, at) else None
        if match is None:
            return None
        found.append(Attribute(int(match[1]), name))
        at = match.end()
    return found if at == len(text) else None


def as_column(column: Any) -> Column:
    """Return ``column`` as a Column; a string names one."""
    return column if isinstance(column, Column) else F.col(column)


def named(names: Iterable[str]) -> list[Column]:
    """Return the columns of those names, as they are: PySpark's own ``F.col`` makes several calls to the JVM more."""
    make = java("org.apache.spark.sql.functions").col
    return [Column(make(quoted((name,)))) for name in names]


def null_column(of: DataType, name: str | None = None) -> Column:
    """Return a null of some type, under a name."""
    null: Column = _null(jvm(), of)
    return null if name is None else Column(null._jc.alias(name))


@functools.lru_cache(maxsize=64)
def _null(_: Any, of: DataType) -> Any:
    return F.lit(None).cast(of)


def default_column(of: DataType, name: str) -> Column:
    """Return some value of a type, under a name, of which Catalyst knows that it is not null."""
    literal = scala_object("expressions.Literal").default(
        java("org.apache.spark.sql.types.DataType").fromJson(of.json())
    )
    return Column(java("org.apache.spark.sql.classic.ExpressionUtils").column(literal)).alias(name)


def select_names(rows: DataFrame, names: Iterable[str]) -> DataFrame:
    """Return the columns of those names, as they are."""
    return select_texts(rows, [quoted((name,)) for name in names])


def select_texts(rows: DataFrame, texts: Sequence[str]) -> DataFrame:
    """Return ``rows.select(*texts)``, in as many calls to the JVM for a hundred texts as for two."""
    if len(texts) < 2:
        return rows.select(*texts)
    others = StructType([StructField(text, NullType()) for text in texts[1:]])
    array = rows.sparkSession._jsparkSession.parseDataType(others.json()).fieldNames()
    return DataFrame(rows._jdf.select(texts[0], array), rows.sparkSession)


def projected_sql(projection: DataFrame, names: Collection[str]) -> dict[str, str]:
    """Return columns of a projection as SQL: the same text in every run of the same pipeline.

    ``Column.toString`` would not do: it shows Python functions with the address of an object.
    """
    plan, texts = analyzed(projection), {}
    for index, (number, name) in enumerate(plan.output):
        if name in names:
            alias = plan.aliases.get(number)
            source = plan.java.output().apply(index) if alias is None else alias.children[0].java
            texts[name] = stable_alternatives(str(source.sql()))
    return texts


def lets_nothing_through(plan: DataFrame) -> bool:
    """Return whether Spark has found that ``plan`` has no rows whatever comes in, as behind ``where(F.lit(False))``.

    It then runs none of the steps before that, in no partition.
    """
    return any(node.kind == "LocalRelation" and node.java.data().isEmpty() for node in optimized(plan).below())


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
    return _pattern(jvm(), name)


def scala_object(name: str) -> Any:
    """Return an object of Scala's, by its name behind ``org.apache.spark.sql.catalyst``."""
    return _scala_object(jvm(), f"org.apache.spark.sql.catalyst.{name}$")


def java(name: str) -> Any:
    """Return a class of the JVM's, by its whole name."""
    return _java(jvm(), name)


# Each part of a name takes a call to the JVM, which has the same things all the time.


@functools.lru_cache(maxsize=64)
def _java(view: Any, name: str) -> Any:
    return getattr(view, name)


@functools.lru_cache(maxsize=64)
def _scala_object(view: Any, name: str) -> Any:
    return getattr(getattr(view, name), "MODULE$")


@functools.lru_cache(maxsize=64)
def _pattern(view: Any, name: str) -> Any:
    return getattr(_scala_object(view, "org.apache.spark.sql.catalyst.trees.TreePattern$"), name)()


def jvm() -> Any:
    """Return py4j's view of the live session's JVM."""
    from pyspark import SparkContext  # noqa: PLC0415 - the live context's JVM, not an import-time one

    context = SparkContext._active_spark_context
    assert context is not None, "columns exist only while a SparkContext does"
    view: Any = context._jvm
    return view
