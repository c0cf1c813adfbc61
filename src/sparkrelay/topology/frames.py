"""Streams and tables as PySpark's own DataFrames: what is written on them is analysed where it stands.

Each method is PySpark's. What it makes is looked at as it is made: row-wise steps stay a DataFrame over the same leaf;
anything else is one of the pipeline's steps, or refused, at the user's line. So a DataFrame here is never deeper than
the steps since the last stateful one.
"""

# ruff: noqa: N802, N803 - PySpark's names

from __future__ import annotations

import functools
import sys
import threading
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, Self

from pyspark.errors import AnalysisException
from pyspark.sql import GroupedData
from pyspark.sql.classic.dataframe import DataFrame

from sparkrelay.catalyst.frames import analyzed, without_leaves
from sparkrelay.catalyst.jvm import nodes_above, patterns
from sparkrelay.errors import TopologyException
from sparkrelay.topology.building.row_checks import MULTIPLYING, check_of_table, check_places
from sparkrelay.topology.call_site import find_call_site
from sparkrelay.topology.columns import quoted
from sparkrelay.topology.naming import check_name
from sparkrelay.topology.nodes import AggregationNode
from sparkrelay.topology.public_calls import checked_call, public_calls
from sparkrelay.topology.reading.calls import Call, check_literals
from sparkrelay.topology.reading.rankings import PLACED, Unlimited, with_place
from sparkrelay.topology.reading.reader import Reader
from sparkrelay.topology.record import spark_errors
from sparkrelay.topology.refusals import REMEDIES, remedy
from sparkrelay.topology.rows import ROW_WISE, Rows, Written
from sparkrelay.topology.schemas import HEADERS, without_kafka
from sparkrelay.topology.step_words import step_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.topology.record import Record

#: PySpark's methods and properties that say something of a DataFrame, and make no other one.
_SAYING: Final = frozenset(
    {
        *("colRegex", "columns", "dtypes", "isLocal", "isStreaming", "metadataColumn", "na", "printSchema"),
        *("sameSemantics", "schema", "semanticHash", "sparkSession", "sql_ctx"),
    }
)
_inside = threading.local()


def _wrapped(name: str) -> Callable[..., Any]:
    plain = getattr(DataFrame, name)

    @functools.wraps(plain)
    def method(self: Frame, *args: Any, **kwargs: Any) -> Any:
        if name in self._refuses:
            raise self._missing(name)
        if getattr(_inside, "calls", False):
            # PySpark's methods use one another.
            return plain(self, *args, **kwargs)
        call = Call(find_call_site(), name)
        for text in args:
            check_literals(text, call)
        return self._made(call, lambda: plain(self, *args, **kwargs), *args)

    return method


@public_calls
class Frame(DataFrame):
    """Rows at some place of a pipeline: a DataFrame, as far as rows can be taken one by one."""

    _kind: ClassVar[str]
    _supported: ClassVar[frozenset[str]]
    #: PySpark's methods that rows of this kind do not have.
    _refuses: ClassVar[frozenset[str]] = frozenset()

    _record: Record
    _rows: Rows

    if TYPE_CHECKING:
        # PySpark's own, but for what they return.
        def alias(self, alias: str) -> Self: ...
        def drop(self, *cols: Any) -> Self: ...
        def replace(self, to_replace: Any, value: Any = ..., subset: Any = ...) -> Self: ...
        def select(self, *cols: Any) -> Self: ...
        def selectExpr(self, *expr: Any) -> Self: ...
        def toDF(self, *cols: str) -> Self: ...
        def withColumn(self, colName: str, col: Any) -> Any: ...
        def withColumnRenamed(self, existing: str, new: str) -> Self: ...
        def withColumns(self, *colsMap: dict[str, Any]) -> Self: ...
        def withColumnsRenamed(self, colsMap: dict[str, str]) -> Self: ...

    @classmethod
    def _of(cls, record: Record, rows: Rows) -> Any:
        made = object.__new__(cls)
        DataFrame.__init__(made, rows.frame._jdf, record.spark)
        made._record = record
        made._rows = rows
        return made

    def _made(self, call: Call, make: Callable[[], Any], *others: Any) -> Any:
        """Return what one of PySpark's methods makes, as rows of the pipeline if it is a DataFrame.

        Args:
            call: the method.
            make: calls it.
            others: what else it is made of.
        """
        with spark_errors(call.call_site), _calls():
            made = make()
        if isinstance(made, GroupedData):
            raise self._missing(call.method)
        known = tuple(other._rows for other in others if isinstance(other, Frame))
        return self._taken(call, made, known) if isinstance(made, DataFrame) else made

    def _taken(self, call: Call, made: DataFrame, known: tuple[Rows, ...]) -> Any:
        rows = self._rows
        written = (*rows.written, Written(call.call_site, call.method, made))
        if made._jdf.queryExecution().isLazyAnalysis():
            self._record.led_on(rows)
            outer = f"{call.where}: rows with outer() in a condition are a subquery: use exists() or scalar() of them"
            return type(self)._of(self._record, Rows(rows.node, made, written, pending=outer))
        kinds = _new_kinds(analyzed(made), analyzed(rows.frame))
        if kinds is not None and kinds <= ROW_WISE and rows.pending is None:
            now = Rows(rows.node, made, written, known=rows.known_plan)
            if not kinds.isdisjoint(MULTIPLYING):
                check_of_table(now, call.call_site, call.method)
            check_places(now)
            return self._next(now)
        try:
            with _calls():
                read = Reader(self._record, call, (rows, *known)).read(made)
        except Unlimited as error:
            return self._next(Rows(rows.node, made, written, pending=str(error), known=rows.known_plan))
        for one in (rows, *known):
            self._record.led_on(one)
        if read.node is rows.node:
            return self._next(Rows(rows.node, read.frame, written, known=read.known_plan))
        behind = Rows(read.node, read.frame, (*read.written, written[-1]), known=read.known_plan)
        return frame_at(self._record, behind)

    def _next(self, rows: Rows) -> Any:
        self._record.unused = {one: line for one, line in self._record.unused.items() if one is not self._rows}
        self._record.unused[rows] = rows.written[-1]
        return type(self)._of(self._record, rows)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self.columns:
            return super().__getattr__(name)
        raise self._missing(name)

    def __getitem__(self, item: Any) -> Any:
        """Return a column, or choose columns or rows, as ``DataFrame[...]``."""
        if getattr(_inside, "calls", False):
            return DataFrame.__getitem__(self, item)
        return self._made(Call(find_call_site(), "[...]"), lambda: DataFrame.__getitem__(self, item))

    def where(self, condition: Any, *, name: str | None = None) -> Any:
        """Keep the rows for which ``condition`` (SQL text or a Column) holds, as ``DataFrame.where``.

        ``F.row_number().over(...) <= 10`` keeps the first rows of each key: a KTable, in which the place is called
        ``row_number``, and with ``F.rank()`` ``rank``.

        Args:
            condition: SQL text or a Column.
            name: of such a table's store.
        """
        return self._where("where", condition, name)

    def filter(self, condition: Any, *, name: str | None = None) -> Any:
        """Keep the rows for which ``condition`` holds; the same as :meth:`where`."""
        return self._where("filter", condition, name)

    def _where(self, method: str, condition: Any, name: Any) -> Any:
        if getattr(_inside, "calls", False):
            return DataFrame.filter(self, condition)
        call_site = find_call_site()
        call = Call(call_site, method, name=check_name(name, call_site))
        check_literals(condition, call)

        def make() -> Any:
            try:
                return DataFrame.filter(self, condition)
            except AnalysisException as error:
                if error.getCondition() != "WINDOW_FUNCTION_NOT_ALLOWED_IN_CLAUSE":
                    raise
                return with_place(DataFrame.withColumn(self, PLACED, condition), self)

        made = self._made(call, make)
        if name is not None and made._rows.node is self._rows.node:
            raise TopologyException(
                f"{call_site}: name={name!r} of {method}() names the table of the first rows of each key, and this "
                "makes none: leave it out"
            )
        return made

    def agg(self, *exprs: Any, name: str | None = None, logged: bool = True) -> Any:
        """Aggregate all rows to a table of one row, as ``DataFrame.agg``; the same as ``groupBy().agg(...)``."""
        grouped: Any = self.groupBy()
        return grouped.agg(*exprs, name=name, logged=logged)

    def transform(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return what a function makes of these rows, as ``DataFrame.transform``."""
        call_site = find_call_site()
        if not callable(func):
            raise TopologyException(f"{call_site}: transform() takes a function, not {func!r}")
        with spark_errors(call_site):
            made = func(self, *args, **kwargs)
        if not isinstance(made, Frame):
            raise TopologyException(
                f"{call_site}: the function of transform() returned no rows of this builder, but {made!r}"
            )
        return made

    def dropna(self, how: str = "any", thresh: int | None = None, subset: Any = None) -> Any:
        """Leave out rows with nulls (or NaN), as ``DataFrame.dropna``; without ``subset`` not for Kafka's own."""
        call = Call(find_call_site(), "dropna")
        looked_at = self._filled() if subset is None else subset
        return self._made(call, lambda: DataFrame.dropna(self, how, thresh, looked_at))

    def fillna(self, value: Any, subset: Any = None) -> Any:
        """Put a value where columns are null, as ``DataFrame.fillna``; without ``subset`` not in Kafka's own."""
        call = Call(find_call_site(), "fillna")
        looked_at = self._filled() if subset is None and not isinstance(value, dict) else subset
        return self._made(call, lambda: DataFrame.fillna(self, value, looked_at))

    def _filled(self) -> list[str]:
        """Return the columns whose nulls are looked for: all but what few records have."""
        shown = without_kafka(self._rows.schema)
        return [quoted(field.name) for field in shown if (field.name, field.dataType) != ("headers", HEADERS)]

    def explain(self, extended: Any = None, mode: str | None = None) -> None:
        """Print where the rows come from and what is done to them, then Spark's own plan of these steps."""
        del mode
        node = self._rows.node
        lines = [f"{self._kind} of {node.text}, {node.call_site}"]
        lines += [f"  {text}" for text in step_words(self._rows)]
        sys.stdout.write("\n".join(lines) + "\n")
        if extended:
            sys.stdout.write(without_leaves(str(analyzed(self._rows.frame).treeString())) + "\n")

    def createOrReplaceTempView(self, name: str) -> None:
        """Have the queries of this builder call these rows so, as ``DataFrame.createOrReplaceTempView``."""
        if not isinstance(name, str) or not name.strip():
            raise TopologyException(f"{find_call_site()}: createOrReplaceTempView() takes a name, not {name!r}")
        self._record.use(self._rows)
        self._record.views[name] = self._rows

    createTempView = createOrReplaceTempView  # noqa: N815 - PySpark's name

    def _missing(self, name: str) -> TopologyException:
        instead = remedy(self._kind, name, self._supported)
        return TopologyException(f"{find_call_site()}: {self._kind} has no {name}(): {instead}")

    def __iter__(self) -> NoReturn:
        raise TopologyException(f"{find_call_site()}: a {self._kind} is a description and holds no rows to go through")

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name}: {field.dataType.simpleString()}" for field in self._rows.schema)
        return f"{self._kind}[{columns}]"

    def _repr_html_(self) -> None:
        return None


def _refused(name: str) -> Any:
    def refuse(self: Frame) -> NoReturn:
        raise self._missing(name)

    return property(refuse)


for _name in dir(DataFrame):
    if _name.startswith("_") or _name in _SAYING or _name in vars(Frame):
        continue
    setattr(Frame, _name, _refused(_name) if _name in REMEDIES else checked_call(_wrapped(_name)))


class _calls:  # noqa: N801 - a context
    """While one of PySpark's methods runs, what it calls itself is not looked at."""

    def __enter__(self) -> None:
        self._before = getattr(_inside, "calls", False)
        _inside.calls = True

    def __exit__(self, *_: object) -> None:
        _inside.calls = self._before


def _new_kinds(plan: Any, before: Any) -> frozenset[str] | None:
    """Return the kinds of nodes that a plan has above another one; None if it is more than that, as with a subquery."""
    above = nodes_above(plan, before)
    if above is None or any(node.containsAnyPattern(patterns("PLAN_EXPRESSION")) for node in above):
        return None
    return frozenset(str(node.nodeName()) for node in above)


#: Whether rows are a table's -> what they are to users.
KINDS: Final[dict[bool, type[Frame]]] = {}


def frame_at(record: Record, rows: Rows) -> Any:
    """Return rows of the pipeline as what users go on with."""
    if rows.written and not isinstance(rows.node, AggregationNode):
        # A table is kept though nothing follows it.
        record.unused[rows] = rows.written[-1]
    return KINDS[rows.node.is_table]._of(record, rows)
