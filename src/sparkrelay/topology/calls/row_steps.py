"""The row-wise steps that streams and tables share, under PySpark's names."""

# ruff: noqa: N802, N803 - PySpark's names

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, Self

from sparkrelay.errors import TopologyException
from sparkrelay.records.format import Format
from sparkrelay.topology.call_site import find_call_site
from sparkrelay.topology.columns import argument_text, is_column, literal_of_now, made_up_seed
from sparkrelay.topology.describe import format_text
from sparkrelay.topology.naming import check_name, check_topic
from sparkrelay.topology.nodes import ActionNode, SinkNode, StepNode
from sparkrelay.topology.public_calls import public_calls
from sparkrelay.topology.refusals import remedy
from sparkrelay.topology.structure import Show, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.lineage import Lineage
    from sparkrelay.topology.nodes import Node, Record

#: Rows, and characters of a cell, that show() may print.
_MOST_SHOWN: Final = 1_000
_SHOWN_WIDTH: Final = 20


@public_calls
class RowSteps:
    """A place in a topology whose rows can be changed one by one. Immutable: every step returns a new object."""

    _kind: ClassVar[str]
    _supported: ClassVar[frozenset[str]]

    __slots__ = ("_lineage", "_node", "_record")

    def __init__(self, record: Record, node: Node, lineage: Lineage) -> None:
        self._record = record
        self._node = node
        self._lineage = lineage

    def select(self, *cols: Any) -> Self:
        """Keep these columns, as ``DataFrame.select``."""
        call_site = find_call_site()
        return self._step("select", _columns("select", flat(cols), call_site), call_site)

    def selectExpr(self, *expr: Any) -> Self:
        """Keep these SQL expressions, as ``DataFrame.selectExpr``."""
        call_site = find_call_site()
        return self._step("selectExpr", _texts("selectExpr", flat(expr), call_site), call_site)

    def withColumn(self, colName: str, col: Any) -> Self:
        """Add or replace a column, as ``DataFrame.withColumn``."""
        call_site = find_call_site()
        args = (check_column_name("withColumn", colName, call_site), _column("withColumn", col, call_site))
        return self._step("withColumn", args, call_site)

    def withColumns(self, colsMap: dict[str, Any]) -> Self:
        """Add or replace several columns at once, as ``DataFrame.withColumns``."""
        call_site = find_call_site()
        if not isinstance(colsMap, dict) or not colsMap:
            raise TopologyException(f"{call_site}: withColumns() takes a dict of name to column, not {colsMap!r}")
        columns = {
            check_column_name("withColumns", name, call_site): _column("withColumns", column, call_site)
            for name, column in colsMap.items()
        }
        return self._step("withColumns", (columns,), call_site)

    def withColumnRenamed(self, existing: str, new: str) -> Self:
        """Rename a column, as ``DataFrame.withColumnRenamed``."""
        call_site = find_call_site()
        args = (
            check_column_name("withColumnRenamed", existing, call_site),
            check_column_name("withColumnRenamed", new, call_site),
        )
        return self._step("withColumnRenamed", args, call_site)

    def drop(self, *cols: Any) -> Self:
        """Leave columns out, as ``DataFrame.drop``."""
        call_site = find_call_site()
        return self._step("drop", _columns("drop", cols, call_site), call_site)

    def transform(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Self:
        """Apply a function from DataFrame to DataFrame that works row by row, as ``DataFrame.transform``.

        What it does cannot be seen here, so a ``groupBy`` behind it always goes through a repartition topic.
        """
        call_site = find_call_site()
        if not callable(func):
            raise TopologyException(
                f"{call_site}: transform() takes a function from DataFrame to DataFrame, not {func!r}"
            )
        return self._step("transform", (func, *args), call_site, kwargs)

    def where(self, condition: Any) -> Self:
        """Keep the rows for which ``condition`` (SQL text or a Column) holds, as ``DataFrame.where``."""
        call_site = find_call_site()
        return self._step("where", (_condition("where", condition, call_site),), call_site)

    def filter(self, condition: Any) -> Self:
        """Keep the rows for which ``condition`` holds; the same as :meth:`where`."""
        call_site = find_call_site()
        return self._step("filter", (_condition("filter", condition, call_site),), call_site)

    def dropna(self, how: str = "any", thresh: int | None = None, subset: str | Sequence[str] | None = None) -> Self:
        """Leave out rows with nulls (or NaN), as ``DataFrame.dropna``.

        Args:
            how: ``any``: of one null; ``all``: only if all are null.
            thresh: keep rows with at least so many values that are not null, whatever ``how`` says.
            subset: the columns that are looked at; without it all but Kafka's own.
        """
        call_site = find_call_site()
        if how not in ("any", "all"):
            raise TopologyException(f"{call_site}: how={how!r} of dropna() must be 'any' or 'all'")
        if thresh is not None and (isinstance(thresh, bool) or not isinstance(thresh, int)):
            raise TopologyException(f"{call_site}: thresh={thresh!r} of dropna() must be a number of columns")
        given = {"how": how, "thresh": thresh, "subset": _subset("dropna", subset, call_site)}
        return self._step("dropna", (), call_site, {name: value for name, value in given.items() if value is not None})

    def fillna(self, value: float | str | bool | dict[str, Any], subset: str | Sequence[str] | None = None) -> Self:
        """Put a value where columns are null (or NaN), as ``DataFrame.fillna``.

        Args:
            value: a number, a text or a boolean, for every column whose type it fits; or a dict of column to value.
            subset: the columns that are filled; without it all but Kafka's own. Behind ``repartition()`` name them if
                rows are to stay where they are: a key that is filled may belong elsewhere.
        """
        call_site = find_call_site()
        given = list(value.values()) if isinstance(value, dict) else [value]
        if not given or not all(isinstance(one, bool | int | float | str) for one in given):
            raise TopologyException(
                f"{call_site}: fillna() takes a number, a text, a boolean, or a dict of column to one, not {value!r}"
            )
        for name in value if isinstance(value, dict) else ():
            check_column_name("fillna", name, call_site)
        names = _subset("fillna", subset, call_site)
        return self._step("fillna", (value,), call_site, {} if names is None else {"subset": names})

    def to(
        self,
        topic: str,
        *,
        key: Format | str | None = None,
        value: Format | None = None,
        headers: str | None = None,
        name: str | None = None,
    ) -> None:
        """Write the rows to a topic, which must exist.

        Args:
            topic: its name.
            key: the column that is the message key, written as what its type calls for: text, a 32-bit or a 64-bit
                number, or bytes. Or a format of that column, ``String("carrier")``. Without it a table's rows are keyed
                by their grouping columns, a stream's by the key they came with.
            value: format of the message value: ``Json()`` for the columns as they are, ``Avro(schema)`` for those that
                the schema names, or a format of one column.
                Without it the columns are written as JSON, and a stream that was read without formats is passed on as
                it is.
            headers: the column of the message headers, an array of structs of ``key`` (string) and ``value`` (binary),
                as ``kafka.headers`` is; it is no part of the value then. Without it there are none, but for a stream
                that was read without formats, whose column ``headers`` is taken.
            name: the sink's name in ``describe()``.

        Raises:
            TopologyException: an argument is of the wrong kind. A column of another type than its format's is found
                when the instance is made.
        """
        call_site = find_call_site()
        check_topic(topic, call_site)
        given: tuple[tuple[str, Any], ...] = (("key", key), ("value", value))
        for place, form in given:
            column = place == "key" and isinstance(form, str) and bool(form.strip())
            if form is not None and not column and not isinstance(form, Format):
                hint = f'String("{form}")' if isinstance(form, str) else "String(...), Json(...), Avro(...) or Raw(...)"
                raise TopologyException(
                    f"{call_site}: {place}= of to({topic!r}) takes a format such as {hint}, not {form!r}"
                )
        if isinstance(key, Format) and not key.has_fixed_bytes:
            raise TopologyException(
                f"{call_site}: key={type(key).__name__}(...) of to({topic!r}) has no fixed bytes, so equal keys could "
                'go to different partitions; use String("column"), Integer, Long or Raw, or leave key= out'
            )
        if value is not None and value.schema_is_for_reading and value.schema is not None:
            kind = type(value).__name__
            raise TopologyException(
                f"{call_site}: value={format_text(value)} of to({topic!r}) has a schema, which is for reading: columns "
                f"are written as they are; select() and cast() them before, and write value={kind}()"
            )
        if headers is not None and (not isinstance(headers, str) or not headers.strip()):
            raise TopologyException(
                f"{call_site}: headers={headers!r} of to({topic!r}) is the name of a column; make it first: "
                'withColumn("headers", F.array(F.struct(F.lit("source").alias("key"), '
                'F.lit("web").cast("binary").alias("value"))))'
            )
        self._record.add(SinkNode(self._node, topic, key, value, check_name(name, call_site), call_site, headers))

    def show(self, n: int = 20, truncate: bool | int = True, *, name: str | None = None) -> None:
        """Print the first rows of each micro-batch on the driver, as ``DataFrame.show``, once it is committed.

        For the first ten minutes with a topic: what is printed is not written anywhere.

        Args:
            n: rows of a micro-batch at most, up to 1,000.
            truncate: True to cut cells off after 20 characters, a number for another width, False for 1,000.
            name: its name in ``describe()``.

        Raises:
            TopologyException: an argument is of the wrong kind.
        """
        call_site = find_call_site()
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= _MOST_SHOWN:
            raise TopologyException(f"{call_site}: n={n!r} of show() must be a number from 1 to {_MOST_SHOWN:,}")
        if not isinstance(truncate, int) or truncate < 0:
            raise TopologyException(f"{call_site}: truncate={truncate!r} of show() must be True, False or a width")
        width = _SHOWN_WIDTH if truncate is True else int(truncate) or _MOST_SHOWN
        show = Show(n, min(width, _MOST_SHOWN), call_site, f"show({n})")
        self._record.add(ActionNode(self._node, show, check_name(name, call_site), call_site))

    def __getattr__(self, name: str) -> Any:
        # Python and notebooks probe for names with an underscore and expect AttributeError.
        if name.startswith("_"):
            raise AttributeError(name)
        instead = remedy(self._kind, name, self._supported)
        raise TopologyException(f"{find_call_site()}: {self._kind} has no {name}(): {instead}")

    def __getitem__(self, name: Any) -> NoReturn:
        raise TopologyException(
            f'{find_call_site()}: columns of a {self._kind} are written F.col("name"), not [{name!r}]'
        )

    def __iter__(self) -> NoReturn:
        raise TopologyException(f"{find_call_site()}: a {self._kind} is a description and holds no rows to go through")

    def __repr__(self) -> str:
        return f"<{self._kind} written at {self._node.call_site}>"

    def _step(
        self, kind: str, args: tuple[Any, ...], call_site: CallSite, kwargs: dict[str, Any] | None = None
    ) -> Self:
        step = make_step(kind, args, call_site, kwargs)
        return type(self)(
            self._record, self._record.add(StepNode(self._node, step, call_site)), self._lineage.after(step)
        )


def make_step(kind: str, args: tuple[Any, ...], call_site: CallSite, kwargs: dict[str, Any] | None = None) -> Step:
    """Return a step with its text."""
    kwargs = dict(kwargs or {})
    words = [argument_text(arg) for arg in args]
    words += [f"{name}={argument_text(value)}" for name, value in kwargs.items()]
    return Step(kind, args, kwargs, call_site, f"{kind}({', '.join(words)})")


def flat(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a method that takes them one by one or as one list, as PySpark's do."""
    return tuple(args[0]) if len(args) == 1 and isinstance(args[0], list | tuple) else args


def check_expression(method: str, value: Any, call_site: CallSite) -> None:
    """Raise TopologyException for a Column, or SQL text, that would stand still from micro-batch to micro-batch."""
    function = made_up_seed(value)
    if function is not None:
        raise TopologyException(
            f"{call_site}: {method}(): {argument_text(value)} would give the same values in every micro-batch: its "
            f'seed was made when the line ran; write it as SQL, F.expr("{function}(...)") without a seed, '
            "which gets a new one in each"
        )
    literal = literal_of_now(value)
    if literal is not None:
        raise TopologyException(
            f"{call_site}: {method}(): {literal} is the time at which the text is read, and stays that; write "
            "current_date() or current_timestamp(), which each micro-batch looks up, current_date() - 1 for yesterday, "
            "and to_timestamp(concat(current_date(), ' 18:00')) for a time of today's"
        )


def _condition(method: str, condition: Any, call_site: CallSite) -> Any:
    if is_column(condition) or (isinstance(condition, str) and condition.strip()):
        check_expression(method, condition, call_site)
        return condition
    hint = "; for a Python function make a udf" if callable(condition) else ""
    raise TopologyException(f"{call_site}: {method}() takes SQL text or a Column, not {condition!r}{hint}")


def _columns(method: str, cols: tuple[Any, ...], call_site: CallSite) -> tuple[Any, ...]:
    if not cols:
        raise TopologyException(f"{call_site}: {method}() names no columns")
    for col in cols:
        if not (is_column(col) or (isinstance(col, str) and col.strip())):
            raise TopologyException(f"{call_site}: {method}() takes names and Columns, not {col!r}")
        check_expression(method, col, call_site)
    return cols


def _texts(method: str, texts: tuple[Any, ...], call_site: CallSite) -> tuple[str, ...]:
    if not texts:
        raise TopologyException(f"{call_site}: {method}() has no expression")
    for text in texts:
        if not isinstance(text, str) or not text.strip():
            raise TopologyException(f"{call_site}: {method}() takes SQL text, not {text!r}")
        check_expression(method, text, call_site)
    return texts


def _column(method: str, column: Any, call_site: CallSite) -> Any:
    if is_column(column):
        check_expression(method, column, call_site)
        return column
    hint = f'F.col("{column}")' if isinstance(column, str) else "F.lit(...)"
    raise TopologyException(f"{call_site}: {method}() takes a Column such as {hint}, not {column!r}")


def _subset(method: str, subset: Any, call_site: CallSite) -> tuple[str, ...] | None:
    if subset is None:
        return None
    names = (subset,) if isinstance(subset, str) else subset
    if not isinstance(names, list | tuple) or not names or any(str(name).strip().endswith("*") for name in names):
        raise TopologyException(
            f"{call_site}: subset={subset!r} of {method}() must be a column's name, or a list that names at least one; "
            "without subset all are looked at"
        )
    return tuple(check_column_name(method, name, call_site) for name in names)


def check_column_name(method: str, name: Any, call_site: CallSite) -> str:
    """Return the name of a column.

    Raises:
        TopologyException: it is none.
    """
    if isinstance(name, str) and name:
        return name
    raise TopologyException(f"{call_site}: {method}() takes a column's name, not {name!r}")
