"""GroupedStream: rows in groups, and what may be kept of each of them."""

# ruff: noqa: N802, N803 - PySpark's names

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame

from sparkrelay.errors import TopologyException
from sparkrelay.topology.call_site import find_call_site
from sparkrelay.topology.frames import frame_at
from sparkrelay.topology.naming import check_name
from sparkrelay.topology.public_calls import public_calls
from sparkrelay.topology.reading.calls import Call, check_literals
from sparkrelay.topology.reading.processors import check_unsupported, transformed
from sparkrelay.topology.record import spark_errors
from sparkrelay.topology.refusals import remedy

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.frames import Frame

#: What may follow ``groupBy``.
_SUPPORTED: Final = frozenset(
    {"agg", "count", "sum", "avg", "mean", "min", "max", "transformWithState", "transformWithStateInPandas"}
)


@public_calls
class GroupedStream:
    """Rows in groups, waiting for ``agg``. Made by ``KStream.groupBy``."""

    def __init__(
        self, frame: Frame, columns: tuple[Any, ...], topic: str | None, call_site: CallSite, method: str = "groupBy"
    ) -> None:
        """Take the rows, what they are grouped by and how, what their repartition topic is called, and the line."""
        if not columns and method != "groupBy":
            raise TopologyException(f"{call_site}: {method}() names no columns")
        self._frame = frame
        self._columns = columns
        self._topic = check_name(topic, call_site)
        self._call_site = call_site
        self._regrouped: dict[Any, Any] = {}
        check_literals(columns, Call(call_site, method))
        with spark_errors(call_site):
            self._data = getattr(DataFrame, method)(frame, *columns)
        frame._record.open[self] = f"{call_site}: {method}() is not followed by agg(...) or count()"

    def agg(
        self,
        *exprs: Any,
        name: str | None = None,
        logged: bool = True,
        late_to: str | None = None,
        retention: str | None = None,
    ) -> Any:
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
        if retention is not None and not (isinstance(retention, str) and retention.strip()):
            raise TopologyException(
                f'{call_site}: agg() takes a retention such as "7 days", not retention={retention!r}'
            )
        if not exprs or (len(exprs) == 1 and isinstance(exprs[0], list | tuple | dict) and not exprs[0]):
            raise TopologyException(f'{call_site}: agg() has no aggregates; such as agg(F.count("*").alias("n"))')
        given = tuple(exprs[0]) if len(exprs) == 1 and isinstance(exprs[0], list | tuple) else exprs
        more = {"late_to": late_to, "retention": retention}
        return self._aggregated("agg", lambda: self._data.agg(*given), name, logged, call_site, **more)

    def count(self, *, name: str | None = None, logged: bool = True) -> Any:
        """Count the rows of each group into a column ``count``, as ``GroupedData.count``; else as :meth:`agg`."""
        return self._aggregated("count", self._data.count, name, logged, find_call_site())

    def sum(self, *cols: str, name: str | None = None, logged: bool = True) -> Any:
        """Sum columns up into ``sum(column)``, as ``GroupedData.sum``; else as :meth:`agg`."""
        return self._aggregated("sum", lambda: self._data.sum(*cols), name, logged, find_call_site())

    def avg(self, *cols: str, name: str | None = None, logged: bool = True) -> Any:
        """Average columns into ``avg(column)``, as ``GroupedData.avg``; else as :meth:`agg`."""
        return self._aggregated("avg", lambda: self._data.avg(*cols), name, logged, find_call_site())

    def mean(self, *cols: str, name: str | None = None, logged: bool = True) -> Any:
        """Average columns into ``avg(column)``; the same as :meth:`avg`."""
        return self._aggregated("mean", lambda: self._data.mean(*cols), name, logged, find_call_site())

    def min(self, *cols: str, name: str | None = None, logged: bool = True) -> Any:
        """Keep the smallest value of columns in ``min(column)``, as ``GroupedData.min``; else as :meth:`agg`."""
        return self._aggregated("min", lambda: self._data.min(*cols), name, logged, find_call_site())

    def max(self, *cols: str, name: str | None = None, logged: bool = True) -> Any:
        """Keep the largest value of columns in ``max(column)``, as ``GroupedData.max``; else as :meth:`agg`."""
        return self._aggregated("max", lambda: self._data.max(*cols), name, logged, find_call_site())

    def transformWithState(  # noqa: PLR0917 - as PySpark has them
        self,
        statefulProcessor: Any,
        outputStructType: Any,
        outputMode: str,
        timeMode: str,
        initialState: None = None,
        eventTimeColumnName: str = "",
        *,
        tick: str | None = None,
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
            tick: how often ``handleTick(keys, timerValues)`` is called for each task, such as ``"1 minute"``, by the
                clock of ``timeMode``. ``keys`` iterates over the keys of all groups of the task that have state;
                variables, timers and rows that are returned belong to the last key that it has given.
            name: the store's name; its changelog is ``<application.id>-<name>-changelog``.

        Raises:
            TopologyException: an argument is of the wrong kind, or the rows are a table's.
        """
        others = (initialState, eventTimeColumnName)
        written = "transformWithState", statefulProcessor, outputStructType, outputMode, timeMode
        return self._transformed(*written, others, tick, name, find_call_site())

    def transformWithStateInPandas(  # noqa: PLR0917 - as PySpark has them
        self,
        statefulProcessor: Any,
        outputStructType: Any,
        outputMode: str,
        timeMode: str,
        initialState: None = None,
        eventTimeColumnName: str = "",
        *,
        tick: str | None = None,
        name: str | None = None,
    ) -> Any:
        """Do the same as :meth:`transformWithState` with a processor that takes and returns pandas' DataFrames."""
        others = (initialState, eventTimeColumnName)
        written = "transformWithStateInPandas", statefulProcessor, outputStructType, outputMode, timeMode
        return self._transformed(*written, others, tick, name, find_call_site())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise TopologyException(
            f"{find_call_site()}: GroupedStream has no {name}(): {remedy('GroupedStream', name, _SUPPORTED)}"
        )

    def __repr__(self) -> str:
        return f"<GroupedStream written at {self._call_site}>"

    def _transformed(  # noqa: PLR0917 - as they are written
        self,
        method: str,
        processor: Any,
        output: Any,
        output_mode: Any,
        time_mode: Any,
        others: tuple[Any, Any],
        tick: Any,
        name: Any,
        call_site: CallSite,
    ) -> Any:
        frame = self._frame
        if frame._rows.node.is_table:
            raise TopologyException(
                f"{call_site}: {method}() takes the rows of a stream, and these are a table's, whose rows change; "
                "put to_stream() before groupBy(), which gives each change of the table by itself"
            )
        check_unsupported(method, *others, call_site)
        frame._record.open.pop(self, None)
        call = Call(call_site, method, name=check_name(name, call_site), topic=self._topic, regrouped=self._regrouped)
        with spark_errors(call_site):
            grouped = self._data.agg(F.count("*"))
        modes = output_mode, time_mode
        rows = transformed(frame._record, call, frame._rows, grouped, processor, output, modes, tick)
        return frame_at(frame._record, rows)

    def _aggregated(
        self,
        method: str,
        make: Callable[[], Any],
        name: str | None,
        logged: bool,
        call_site: CallSite,
        **more: Any,
    ) -> Any:
        if not isinstance(logged, bool):
            raise TopologyException(f"{call_site}: {method}() takes logged=True or logged=False, not {logged!r}")
        self._frame._record.open.pop(self, None)
        name = check_name(name, call_site)
        call = Call(call_site, method, name=name, topic=self._topic, logged=logged, regrouped=self._regrouped, **more)
        return self._frame._made(call, make)
