"""KStream and KTable: what users chain. Each call returns a new object and changes nothing but the builder's list."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from sparkrelay.errors import TopologyException
from sparkrelay.records.formats import Format
from sparkrelay.topology.columns import describe, plain_name
from sparkrelay.topology.plan import Aggregation, CallSite, Sink, Source, Step, call_site

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.topology.builder import StreamsBuilder

__all__ = ["GroupedStream", "KStream", "KTable", "check_topic"]

#: Column that carries a computed grouping key through a repartition topic's key; the runtime does not ship it.
GROUP_KEY_PREFIX = "__sparkrelay_groupkey_"

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,200}")
_NOT_YET = {
    "join": "joins are not there yet",
    "foreachBatch": "foreachBatch is not there yet; write to a topic with to() and read that",
}
_SUPPORTED = (
    "select", "where", "filter", "withColumn", "withColumns", "withColumnRenamed", "drop", "selectExpr", "transform",
    "groupBy", "repartition", "to", "to_stream",
)  # fmt: skip


def check_topic(topic: object, where: CallSite) -> str:
    """Return a topic's name, or raise TopologyException if Kafka would refuse it."""
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or topic in {".", ".."}:
        raise TopologyException(
            f"{where}: {topic!r} is not a topic name: use 1 to 200 letters, digits, '.', '_' or '-'"
        )
    return topic


class _Rows:
    """The row-wise steps that KStream and KTable share; each means what it means on a DataFrame."""

    def _then(self, kind: str, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Self:
        where = call_site()
        given = [describe(arg) for arg in args] + [f"{k}={describe(v)}" for k, v in (kwargs or {}).items()]
        step = Step(kind, args, MappingProxyType(dict(kwargs or {})), where, f"{kind}({', '.join(given)})")
        return self._with_step(step)

    def _with_step(self, step: Step) -> Self:
        raise AssertionError(f"each kind of stream says how it takes {step.text}")

    def select(self, *cols: Any) -> Self:
        """Keep or compute columns."""
        if not cols:
            raise TopologyException(f"{call_site()}: select() needs at least one column")
        flat = tuple(cols[0]) if len(cols) == 1 and isinstance(cols[0], list | tuple) else cols
        return self._then("select", flat)

    def selectExpr(self, *expr: str) -> Self:  # noqa: N802 - PySpark's name
        """Keep or compute columns by SQL expressions."""
        if not expr:
            raise TopologyException(f"{call_site()}: selectExpr() needs at least one expression")
        return self._then("selectExpr", expr)

    def where(self, condition: Any) -> Self:
        """Keep the rows for which the condition holds."""
        return self._then("where", (condition,))

    filter = where

    def withColumn(self, colName: str, col: Any) -> Self:  # noqa: N802, N803 - PySpark's names
        """Add or replace a column."""
        return self._then("withColumn", (colName, col))

    def withColumns(self, colsMap: Mapping[str, Any]) -> Self:  # noqa: N802, N803 - PySpark's names
        """Add or replace columns."""
        return self._then("withColumns", (dict(colsMap),))

    def withColumnRenamed(self, existing: str, new: str) -> Self:  # noqa: N802 - PySpark's name
        """Rename a column."""
        return self._then("withColumnRenamed", (existing, new))

    def drop(self, *cols: Any) -> Self:
        """Remove columns."""
        return self._then("drop", cols)

    def transform(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Self:
        """Apply a function from DataFrame to DataFrame; it must keep every row's columns it was not told about."""
        if not callable(func):
            raise TopologyException(
                f"{call_site()}: transform() takes a function from DataFrame to DataFrame, not {func!r}"
            )
        return self._then("transform", (func, *args), kwargs)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        where = call_site()
        if name in _NOT_YET:
            raise TopologyException(f"{where}: {_NOT_YET[name]}")
        near = difflib.get_close_matches(name, _SUPPORTED, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; supported are {', '.join(_SUPPORTED)}"
        raise TopologyException(f"{where}: {name} is not supported on a stream{hint}")


@dataclass(frozen=True)
class KStream(_Rows):
    """Records as they come, row by row. Made by ``StreamsBuilder.stream``."""

    _builder: StreamsBuilder = field(repr=False)
    _source: Source
    _steps: tuple[Step, ...] = ()
    #: Columns that make the message key, under their present names; None once they are not known to be untouched.
    _key: frozenset[str] | None = None

    def _with_step(self, step: Step) -> Self:
        return replace(self, _steps=(*self._steps, step), _key=_key_after(step, self._key))

    def groupBy(self, *cols: Any) -> GroupedStream:  # noqa: N802 - PySpark's name
        """Group by columns or expressions such as ``F.window``; a repartition topic is made where it is needed."""
        where = call_site()
        keys = tuple(cols[0]) if len(cols) == 1 and isinstance(cols[0], list | tuple) else cols
        if not keys:
            raise TopologyException(f"{where}: groupBy() needs at least one column")
        return GroupedStream(self, keys, where)

    groupby = groupBy

    def repartition(self, *cols: Any, name: str | None = None, partitions: int | None = None) -> KStream:
        """Send the rows through an internal topic, keyed by the columns, so that equal keys meet in one task."""
        where = call_site()
        if not cols:
            raise TopologyException(f"{where}: repartition() needs at least one column")
        if partitions is not None and (not isinstance(partitions, int) or partitions < 1):
            raise TopologyException(f"{where}: repartition(partitions={partitions!r}): use a number of at least 1")
        return self._repartitioned(cols, name, partitions, where)

    def to(self, topic: str, *, key: Any = None, value: Format | None = None) -> None:
        """Write the rows to a topic.

        Args:
            topic: must exist.
            key: column name, list of them, or a format of one column; None keeps the message's key.
            value: format; None writes Kafka's ``value`` column of an unformatted stream, else JSON of the columns.
        """
        where = call_site()
        self._builder._add_leg(self._source, self._steps, None, (), _sink(topic, key, value, where))

    def _repartitioned(
        self, cols: tuple[Any, ...], name: str | None, partitions: int | None, where: CallSite
    ) -> KStream:
        names: list[str] = []
        stream = self
        for index, column in enumerate(cols):
            plain = plain_name(column)
            if plain is None:
                plain = f"{GROUP_KEY_PREFIX}{index}"
                text = f"key({describe(column)})"
                step = Step("withColumn", (plain, column), MappingProxyType({}), where, text)
                stream = replace(stream, _steps=(*stream._steps, step))
            names.append(plain)
        base = self._builder._name(name, f"{self._source.name}-by-{_label(cols)}", where, kind="repartition topic")
        topic = f"{base}-repartition"
        sink = Sink(topic, tuple(names), None, internal=True, call_site=where, partitions=partitions)
        self._builder._add_leg(stream._source, stream._steps, None, (), sink)
        source = Source(topic, (topic,), None, None, None, internal=True, call_site=where)
        key = frozenset(n for n in names if not n.startswith(GROUP_KEY_PREFIX))
        return KStream(self._builder, source, (), key or None)


@dataclass(frozen=True)
class GroupedStream:
    """A stream grouped by keys; ``agg`` or ``count`` makes a table of it."""

    _stream: KStream
    _keys: tuple[Any, ...]
    _where: CallSite

    def agg(self, *exprs: Any, name: str | None = None) -> KTable:
        """Keep running aggregates per group, in a store with a changelog.

        Args:
            *exprs: ``F.count``, ``F.sum``, ``F.avg``, ``F.min``, ``F.max``, with ``alias`` as you like.
            name: name of the store; None derives one from source and keys.
        """
        where = call_site()
        if not exprs:
            raise TopologyException(f"{where}: agg() needs at least one aggregate, such as F.count('*')")
        if any(isinstance(expr, dict) for expr in exprs):
            raise TopologyException(f'{where}: agg() takes columns such as F.sum("amount"), not a dict')
        return self._table(exprs, name, where)

    def count(self, name: str | None = None) -> KTable:
        """Count the rows of each group, in a column ``count``."""
        return self._table(("count",), name, call_site())

    def _table(self, exprs: tuple[Any, ...], name: str | None, where: CallSite) -> KTable:
        stream, keys = self._stream, self._keys
        builder = stream._builder
        store = builder._name(name, f"{_origin(stream._source)}-by-{_label(keys)}", where, kind="store")
        if not _keeps_partition(stream, keys):
            plain = tuple(key for key in keys if plain_name(key) is not None)
            stream = stream._repartitioned(plain or keys, store, None, where)
        text = f"groupBy({', '.join(map(describe, keys))}).agg({', '.join(map(describe, exprs))})"
        aggregation = Aggregation(store, keys, exprs, where, text)
        table = KTable(builder, stream._source, stream._steps, aggregation, ())
        builder._note_table(table, where)
        return table


@dataclass(frozen=True)
class KTable(_Rows):
    """The changed rows of each micro-batch of an aggregate: its newest values, by key."""

    _builder: StreamsBuilder = field(repr=False)
    _source: Source
    _before: tuple[Step, ...]
    _aggregation: Aggregation
    _after: tuple[Step, ...] = ()

    def _with_step(self, step: Step) -> Self:
        return replace(self, _after=(*self._after, step))

    def to_stream(self) -> Self:
        """Take the table's changes as a stream; they are that already, so nothing happens."""
        return self

    def to(self, topic: str, *, key: Any = None, value: Format | None = None) -> None:
        """Write the changed rows to a topic; without ``key`` under the grouping key, without ``value`` as JSON."""
        where = call_site()
        self._builder._end_table(self, _sink(topic, key, value, where))


def _sink(topic: str, key: Any, value: Format | None, where: CallSite) -> Sink:
    if value is not None and not isinstance(value, Format):
        raise TopologyException(f"{where}: to(value={value!r}): use a format such as Json() or String()")
    names: tuple[str, ...] | None = None
    if key is None:
        pass
    elif isinstance(key, Format):
        if not hasattr(key, "column_name"):
            raise TopologyException(f"{where}: to(key={key!r}): a key is one column or a tuple of them")
        names = (key.column_name("key"),)
    else:
        given = key if isinstance(key, list | tuple) else (key,)
        names = tuple(plain_name(column) or "" for column in given)
        if not names or "" in names:
            raise TopologyException(f"{where}: to(key={key!r}): name columns; compute them in a withColumn() before")
    return Sink(check_topic(topic, where), names, value, internal=False, call_site=where)


def _origin(source: Source) -> str:
    return source.name.removesuffix("-repartition")


def _label(columns: tuple[Any, ...]) -> str:
    """Return a part of a topic name that says what is grouped by."""
    words = [plain_name(column) or describe(column).partition("(")[0] for column in columns]
    legal = re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(words)).strip("-.")
    return legal[:80] or "key"


def _keeps_partition(stream: KStream, keys: tuple[Any, ...]) -> bool:
    """Tell whether equal groups already meet in one partition: the keys include all of the message key."""
    if stream._key is None:
        return False
    names = {plain_name(key) for key in keys}
    return stream._key <= names


def _key_after(step: Step, key: frozenset[str] | None) -> frozenset[str] | None:
    """Return the key's columns after a step, or None once they may have been touched."""
    if key is None:
        return None
    match step.kind:
        case "where":
            return key
        case "withColumn":
            return None if step.args[0] in key else key
        case "withColumns":
            return None if key & set(step.args[0]) else key
        case "withColumnRenamed":
            existing, new = step.args
            if new in key:
                return None
            return (key - {existing}) | {new} if existing in key else key
        case "drop":
            return None if key & {plain_name(column) for column in step.args} else key
        case "select":
            names = {plain_name(column) for column in step.args}
            return key if "*" in step.args or key <= names else None
        case "selectExpr":
            names = {expr.strip() for expr in step.args if isinstance(expr, str)}
            return key if "*" in names or key <= names else None
        case _:
            return None
