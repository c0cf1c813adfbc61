"""GroupedStream: rows in groups, and what may be kept of each of them."""

# ruff: noqa: N802, N803 - PySpark's names

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sparkrelay.errors import TopologyException
from sparkrelay.topology.call_site import find_call_site
from sparkrelay.topology.calls.row_steps import check_expression, flat
from sparkrelay.topology.calls.stateful_steps import NamedAggregate
from sparkrelay.topology.calls.transformations import check_unsupported, transform
from sparkrelay.topology.columns import argument_text, is_column
from sparkrelay.topology.naming import check_name, check_topic
from sparkrelay.topology.nodes import AggregationNode, LateNode, SinkNode
from sparkrelay.topology.public_calls import public_calls
from sparkrelay.topology.refusals import remedy

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.nodes import GroupingNode, Node, Record

#: What a dictionary may name, and what Spark calls it.
_NAMED = {name: name for name in ("count", "sum", "avg", "min", "max")} | {"mean": "avg"}

#: What may follow ``groupBy``.
_SUPPORTED = frozenset(
    {"agg", "count", "sum", "avg", "mean", "min", "max", "transformWithState", "transformWithStateInPandas"}
)

#: The KTable, which knows this class and is not known here.
TableT = TypeVar("TableT")


@public_calls
class GroupedStream(Generic[TableT]):
    """Rows in groups, waiting for ``agg``. Made by ``KStream.groupBy``."""

    __slots__ = ("_node", "_record", "_stream", "_table")

    def __init__(
        self,
        record: Record,
        node: GroupingNode,
        table: Callable[[AggregationNode], TableT],
        stream: Callable[[Node], Any] | None = None,
    ) -> None:
        """Take the grouping, a factory of its KTable, and one of a KStream (None when a table is grouped)."""
        self._record = record
        self._node = node
        self._table = table
        self._stream = stream

    def agg(
        self,
        *exprs: Any,
        name: str | None = None,
        logged: bool = True,
        late_to: str | None = None,
        retention: str | None = None,
    ) -> TableT:
        """Aggregate each group, as ``GroupedData.agg``.

        Args:
            exprs: Columns of aggregates, such as ``F.sum("amount").alias("total")``, and expressions of them; or one
                dictionary of columns and functions, such as ``{"amount": "sum", "*": "count"}``, whose results are
                called ``sum(amount)`` and ``count(1)`` as in PySpark.
            name: the store's name; its changelog is ``<application.id>-<name>-changelog``. Without it a name is made of
                the stream's name and the grouping columns.
            logged: False for a store without changelog. Less is written, but what it holds is on one disk only: a task
                that moves to another process, or whose disk is lost, continues with an empty store. It has no standbys.
                Either all stores of a sub-topology have changelogs, or none has.
            late_to: a topic for rows that are dropped because their window is closed, unchanged and with their keys, in
                JSON; for sliding windows, once for each closed window. Needs ``withWatermark``.
            retention: how long closed windows stay readable in the store, such as ``"7 days"``: from the window's end
                on, in watermark time, as ``Materialized.withRetention`` of Kafka Streams. They accept no rows. Needs
                ``withWatermark`` and ``F.window``.

        Raises:
            TopologyException: there are no aggregates, or an argument is of the wrong kind.
        """
        call_site = find_call_site()
        names = exprs[0] if len(exprs) == 1 and isinstance(exprs[0], dict) else None
        aggregates: tuple[Any, ...] = flat(exprs) if names is None else _by_names(names, call_site)
        if not aggregates:
            raise TopologyException(f'{call_site}: agg() has no aggregates; such as agg(F.count("*").alias("n"))')
        for aggregate in aggregates:
            if isinstance(aggregate, NamedAggregate):
                continue
            if not is_column(aggregate):
                raise TopologyException(
                    f'{call_site}: agg() takes Columns such as F.sum("amount").alias("total"), not {aggregate!r}'
                )
            check_expression("agg", aggregate, call_site)
        arguments = [a.name if isinstance(a, NamedAggregate) else argument_text(a) for a in aggregates]
        if retention is not None:
            if not isinstance(retention, str) or not retention.strip():
                raise TopologyException(
                    f'{call_site}: agg() takes a retention such as "7 days", not retention={retention!r}'
                )
            arguments.append(f"retention={retention!r}")
        return self._aggregate(aggregates, name, logged, "agg", arguments, call_site, late_to, retention)

    def count(self, *, name: str | None = None, logged: bool = True) -> TableT:
        """Count the rows of each group into a column ``count``, as ``GroupedData.count``; else as :meth:`agg`."""
        return self._aggregate((NamedAggregate(),), name, logged, "count", [], find_call_site())

    def sum(self, *cols: str, name: str | None = None, logged: bool = True) -> TableT:
        """Sum columns up into ``sum(column)``, as ``GroupedData.sum``; else as :meth:`agg`."""
        return self._of_columns("sum", "sum", cols, name, logged)

    def avg(self, *cols: str, name: str | None = None, logged: bool = True) -> TableT:
        """Average columns into ``avg(column)``, as ``GroupedData.avg``; else as :meth:`agg`."""
        return self._of_columns("avg", "avg", cols, name, logged)

    def mean(self, *cols: str, name: str | None = None, logged: bool = True) -> TableT:
        """Average columns into ``avg(column)``; the same as :meth:`avg`."""
        return self._of_columns("mean", "avg", cols, name, logged)

    def min(self, *cols: str, name: str | None = None, logged: bool = True) -> TableT:
        """Keep the smallest value of columns in ``min(column)``, as ``GroupedData.min``; else as :meth:`agg`."""
        return self._of_columns("min", "min", cols, name, logged)

    def max(self, *cols: str, name: str | None = None, logged: bool = True) -> TableT:
        """Keep the largest value of columns in ``max(column)``, as ``GroupedData.max``; else as :meth:`agg`."""
        return self._of_columns("max", "max", cols, name, logged)

    def transformWithState(  # noqa: PLR0917 - as PySpark has them
        self,
        statefulProcessor: Any,
        outputStructType: Any,
        outputMode: str,
        timeMode: str,
        initialState: None = None,
        eventTimeColumnName: str = "",
        *,
        name: str | None = None,
    ) -> Any:
        """Give each group's rows to a stateful processor of yours, as ``GroupedData.transformWithState``.

        The processor is PySpark's own ``pyspark.sql.streaming.StatefulProcessor``: for each micro-batch and task a copy
        of it gets ``init(handle)``, then ``handleInputRows(key, rows, timerValues)`` for each group that has rows, then
        ``handleExpiredTimer`` for each timer that is due, then ``close()``. What is to last it keeps in the variables
        that the handle gives it, which are journaled, restored and followed by standbys as every store is.

        The result is a stream of the rows that it returns. Their message key is the grouping key, whether
        ``outputStructType`` has its columns or not; ``to(topic, key=...)`` takes columns that it has. The timestamp of
        a row is the newest of the group's rows in the micro-batch, or the time that its timer was set to. Rows whose
        key is null are left out, as by ``agg``; in PySpark they are a group.

        Args:
            statefulProcessor: the processor. It travels to the workers as a Python function does.
            outputStructType: a ``StructType``, or text such as ``"user string, n long"``.
            outputMode: ``"Append"`` or ``"Update"``; which is meant changes nothing, as in Spark.
            timeMode: ``"None"``; ``"ProcessingTime"`` for timers and ``ttlDurationMs`` by the clock of the wall;
                ``"EventTime"`` for timers by the watermark, which takes ``withWatermark`` before ``groupBy``: then late
                rows are left out.
            initialState: there is none; for PySpark's signature.
            eventTimeColumnName: likewise: put ``withWatermark`` behind it.
            name: the store's name; its changelog is ``<application.id>-<name>-changelog``.

        Raises:
            TopologyException: an argument is of the wrong kind, or the rows are a table's.
        """
        others = (initialState, eventTimeColumnName)
        written = "transformWithState", statefulProcessor, outputStructType, outputMode, timeMode
        return self._transformed(*written, others, name, find_call_site())

    def transformWithStateInPandas(  # noqa: PLR0917 - as PySpark has them
        self,
        statefulProcessor: Any,
        outputStructType: Any,
        outputMode: str,
        timeMode: str,
        initialState: None = None,
        eventTimeColumnName: str = "",
        *,
        name: str | None = None,
    ) -> Any:
        """Do the same as :meth:`transformWithState` with a processor that takes and returns pandas' DataFrames."""
        others = (initialState, eventTimeColumnName)
        written = "transformWithStateInPandas", statefulProcessor, outputStructType, outputMode, timeMode
        return self._transformed(*written, others, name, find_call_site())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise TopologyException(
            f"{find_call_site()}: GroupedStream has no {name}(): {remedy('GroupedStream', name, _SUPPORTED)}"
        )

    def __repr__(self) -> str:
        return f"<GroupedStream written at {self._node.call_site}>"

    def _transformed(  # noqa: PLR0917 - as they are written
        self,
        method: str,
        processor: Any,
        output: Any,
        output_mode: Any,
        time_mode: Any,
        others: tuple[Any, Any],
        name: Any,
        call_site: CallSite,
    ) -> Any:
        if self._stream is None:
            raise TopologyException(
                f"{call_site}: {method}() takes the rows of a stream, and these are a table's, whose rows change; "
                "put to_stream() before groupBy(), which gives each change of the table by itself"
            )
        check_unsupported(method, *others, call_site)
        modes = output_mode, time_mode
        return self._stream(transform(self._record, self._node, processor, output, modes, name, method, call_site))

    def _of_columns(self, step: str, function: str, cols: tuple[Any, ...], name: str | None, logged: bool) -> TableT:
        call_site = find_call_site()
        columns = flat(cols)
        for column in columns:
            if not (isinstance(column, str) and column.strip() and column.strip() != "*"):
                raise TopologyException(
                    f"{call_site}: {step}() takes names of columns, not {column!r}; agg() takes Columns"
                )
        if not columns:
            raise TopologyException(
                f'{call_site}: {step}() names no columns, such as {step}("amount"): which ones are numbers is not '
                "known before the pipeline runs"
            )
        aggregates = tuple(NamedAggregate(function, column) for column in columns)
        return self._aggregate(aggregates, name, logged, step, [*map(repr, columns)], call_site)

    def _aggregate(  # noqa: PLR0917 - as they are written
        self,
        aggregates: tuple[Any, ...],
        name: str | None,
        logged: bool,
        step: str,
        arguments: list[str],
        call_site: CallSite,
        late_to: str | None = None,
        retention: str | None = None,
    ) -> TableT:
        if not isinstance(logged, bool):
            raise TopologyException(f"{call_site}: {step}() takes logged=True or logged=False, not {logged!r}")
        text = f"{step}({', '.join(arguments if logged else [*arguments, 'logged=False'])})"
        node = self._record.add(
            AggregationNode(
                self._node, aggregates, check_name(name, call_site), logged, text, call_site, retention=retention
            )
        )
        if late_to is not None:
            late = self._record.add(LateNode(self._node.parent, node, call_site))
            self._record.add(SinkNode(late, check_topic(late_to, call_site), None, None, None, call_site))
        return self._table(node)


def _by_names(functions: dict[Any, Any], call_site: CallSite) -> tuple[NamedAggregate, ...]:
    """Return the aggregates of ``agg({"amount": "sum"})``."""
    aggregates = []
    for column, function in functions.items():
        if not (isinstance(column, str) and column.strip()):
            raise TopologyException(f"{call_site}: agg() takes a dictionary of names of columns, not {column!r}")
        if not isinstance(function, str) or function not in _NAMED:
            raise TopologyException(
                f"{call_site}: agg() takes the name of a function for column {column!r}, one of {', '.join(_NAMED)}, "
                f'not {function!r}; others are written as Columns, such as F.stddev("amount")'
            )
        if column == "*" and function != "count":
            raise TopologyException(f'{call_site}: agg() takes {{"*": "count"}}, not {function!r} of all columns')
        aggregates.append(NamedAggregate(_NAMED[function], column))
    return tuple(aggregates)
