"""KStream and KTable: DataFrames of a pipeline, with what Spark has no word for."""

# ruff: noqa: N802, N803 - PySpark's names

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.classic.dataframe import DataFrame

from sparkrelay.errors import TopologyException
from sparkrelay.topology.call_site import find_call_site
from sparkrelay.topology.columns import flat, function_text
from sparkrelay.topology.endings import Ending
from sparkrelay.topology.frames import KINDS, frame_at
from sparkrelay.topology.global_table import GlobalKTable
from sparkrelay.topology.grouped_stream import GroupedStream
from sparkrelay.topology.naming import check_name
from sparkrelay.topology.nodes import TableJoinNode
from sparkrelay.topology.public_calls import public_calls
from sparkrelay.topology.reading.calls import Call, both_ways
from sparkrelay.topology.reading.collected_joins import collected_join
from sparkrelay.topology.reading.repartition import repartitioned
from sparkrelay.topology.reading.tables import as_stream, keep_newest, key_places
from sparkrelay.topology.refusals import WHOLE_TABLE
from sparkrelay.topology.schemas import without_kafka
from sparkrelay.topology.structure import Foreach, ForeachBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.types import BatchId

#: Names of which others may be misspellings.
_ROW_STEPS: Final = frozenset(
    {
        *("alias", "drop", "dropna", "fillna", "filter", "select", "selectExpr", "show", "to", "toDF", "transform"),
        *("where", "withColumn", "withColumns", "withColumnRenamed", "withColumnsRenamed"),
    }
)


@public_calls
class KStream(Ending):
    """Rows of an endless stream: a DataFrame. Made by ``StreamsBuilder.stream``.

    Usage::

        flights.where("dep_delay is not null").groupBy("carrier").agg(F.avg("dep_delay")).to("delays")
    """

    _kind = "KStream"
    _supported = _ROW_STEPS | {
        *("dropDuplicates", "dropDuplicatesWithinWatermark", "drop_duplicates", "foreach", "foreachBatch", "groupBy"),
        *("join", "repartition", "to_table", "union", "unionByName", "withWatermark"),
    }

    def withWatermark(self, eventTime: str, delayThreshold: str) -> KStream:
        """Say in which column a row's event time is, and how late rows may come, as ``DataFrame.withWatermark``.

        A grouping by ``F.window`` behind it lets windows end: once a task has seen an event time of the window's end
        and ``delayThreshold`` more, the window takes no further row and its state is removed. Each task has a clock of
        its own, which its state keeps: it goes on where it was after a failover.

        Args:
            eventTime: name of a timestamp or date column, which the grouping still has.
            delayThreshold: such as ``"10 minutes"``.

        Raises:
            TopologyException: an argument is of the wrong kind.
        """
        call = Call(find_call_site(), "withWatermark")
        try:
            made: KStream = self._made(call, lambda: DataFrame.withWatermark(self, eventTime, delayThreshold))
        except TopologyException as error:
            if "EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE" not in str(error):
                raise
            hint = f'F.timestamp_millis("{eventTime}") of milliseconds, or F.col("{eventTime}").cast("timestamp")'
            raise TopologyException(f"{error}; make a timestamp of it first, {hint}") from error
        return made

    def foreach(self, f: Callable[[Any], Any], *, name: str | None = None) -> None:
        """Give each row to a function, as ``DataFrame.foreach``, in a Python worker; it takes a ``Row``.

        At least once: rows are passed before their micro-batch is committed, and again if it is repeated after a
        failure or a kill. Records without a value are skipped.

        Args:
            f: its return value is ignored; an exception fails the micro-batch, like that of a UDF.
            name: its name in ``describe()``.

        Raises:
            TopologyException: it is not a function.
        """
        call_site = find_call_site()
        if not callable(f):
            raise TopologyException(f"{call_site}: foreach() takes a function of a Row, not {f!r}")
        self._act(Foreach(f, call_site, f"foreach({function_text(f)})"), name, call_site)

    def foreachBatch(self, func: Callable[[Any, BatchId], Any], *, name: str | None = None) -> None:
        """Give the rows of each micro-batch to a function on the driver, as ``DataStreamWriter.foreachBatch``.

        It is called once for each task with rows, ``func(df, batch_id)``, before the micro-batch is committed, one task
        after the other. ``df`` has the task's rows in a fixed order, and can be read repeatedly until ``func`` returns.
        Records without a value are skipped.

        ``batch_id`` is an ``int`` with ``.task`` and ``.txn_app_id`` (:class:`~sparkrelay.BatchId`). After a failure or
        a kill the function is called again, wherever the task is by then, always with the same rows for the same task
        and number. So a sink that recognizes a repeated number, or whose writes are idempotent, gets every row exactly
        once; others at least once. This holds if the steps before it are deterministic and the records are still in
        the topic: docs/how-to/write-elsewhere.md.

        Args:
            func: its return value is ignored; an exception fails the micro-batch, like that of a UDF.
            name: its name in ``describe()`` and in ``txn_app_id``.

        Raises:
            TopologyException: it is not a function.
        """
        call_site = find_call_site()
        if not callable(func):
            raise TopologyException(f"{call_site}: foreachBatch() takes a function (df, batch_id), not {func!r}")
        self._act(ForeachBatch(func, call_site, f"foreachBatch({function_text(func)})"), name, call_site)

    def unionByName(self, other: Any, allowMissingColumns: bool = False) -> KStream:
        """Put the rows of two streams together, as ``DataFrame.unionByName``; ``KStream.merge`` of Kafka Streams.

        Rows of each stay in their order; between the two there is none. A ``groupBy`` behind it goes through a
        repartition topic. Its watermark is that of both, with the longer delay, if both have one of that column.

        Args:
            other: of the same builder, with columns of the same names, in any order.
            allowMissingColumns: True to have nulls where one of them lacks a column.

        Raises:
            TopologyException: it is no stream of this builder, or columns are missing.
        """
        call = Call(find_call_site(), "unionByName")
        self._require_stream(other, call)
        made: KStream = self._made(call, lambda: DataFrame.unionByName(self, other, allowMissingColumns), other)
        return made

    def union(self, other: Any) -> KStream:
        """Put the rows of two streams together by the places of their columns, as ``DataFrame.union``."""
        call = Call(find_call_site(), "union")
        self._require_stream(other, call)
        made: KStream = self._made(call, lambda: DataFrame.union(self, other), other)
        return made

    def unionAll(self, other: Any) -> KStream:
        """Do the same as :meth:`union`."""
        call = Call(find_call_site(), "unionAll")
        self._require_stream(other, call)
        made: KStream = self._made(call, lambda: DataFrame.union(self, other), other)
        return made

    def groupBy(self, *cols: Any, name: str | None = None) -> GroupedStream:  # type: ignore[override]
        """Group rows, as ``DataFrame.groupBy``.

        If the grouping columns do not hold the message key, unchanged since it was read, the rows go through a
        repartition topic first: then all rows of a group are in one task. Rows whose key is null are left out, as in
        Kafka Streams; with a repartition topic that is when the only column of its key is null.

        Args:
            cols: names, Columns such as ``F.window("time", "1 day")``, or a list of them; none for totals of all rows,
                which one task computes.
            name: of the repartition topic, if one is needed.

        Raises:
            TopologyException: a column is of the wrong kind.
        """
        return GroupedStream(self, flat(cols), name, find_call_site())

    groupby = groupBy  # type: ignore[assignment]

    def rollup(self, *cols: Any, name: str | None = None) -> GroupedStream:  # type: ignore[override]
        """Group rows by columns, and by fewer and fewer of them, as ``DataFrame.rollup``; else as :meth:`groupBy`."""
        return GroupedStream(self, flat(cols), name, find_call_site(), "rollup")

    def cube(self, *cols: Any, name: str | None = None) -> GroupedStream:  # type: ignore[override]
        """Group rows by columns, and by any of them, as ``DataFrame.cube``; else as :meth:`groupBy`."""
        return GroupedStream(self, flat(cols), name, find_call_site(), "cube")

    def dropDuplicates(
        self, subset: list[str] | None = None, *, name: str | None = None, logged: bool = True
    ) -> KStream:
        """Let the first row of each key go on and drop all later ones, as ``DataFrame.dropDuplicates``.

        Keys are remembered for ever, unless ``subset`` has the column of a ``withWatermark`` before it: then for as
        long as rows of that time may come, and rows that are later are dropped, too. To forget keys by a time that is
        not among them there is :meth:`dropDuplicatesWithinWatermark`.

        Rows stay as they are, with their keys. If the columns do not hold the message key, unchanged since it was read,
        they go through a repartition topic first and have its key from then on. Rows whose key is null are left out as
        by :meth:`groupBy`; a null beside other columns is a value like others.

        Args:
            subset: names of the columns that make the key.
            name: the store's name; its changelog is ``<application.id>-<name>-changelog``.
            logged: False for a store without changelog, as in :meth:`GroupedStream.agg`.

        Raises:
            TopologyException: an argument is of the wrong kind.
        """
        return self._deduplicated("dropDuplicates", subset, name, logged, find_call_site())

    def drop_duplicates(
        self, subset: list[str] | None = None, *, name: str | None = None, logged: bool = True
    ) -> KStream:
        """Do the same as :meth:`dropDuplicates`."""
        return self._deduplicated("drop_duplicates", subset, name, logged, find_call_site())

    def dropDuplicatesWithinWatermark(
        self, subset: list[str] | None = None, *, name: str | None = None, logged: bool = True
    ) -> KStream:
        """Keep the first row of each key and drop those that follow within the delay of ``withWatermark``.

        As ``DataFrame.dropDuplicatesWithinWatermark``: a key is remembered until the watermark has passed its row's
        event time plus the delay, so of several rows of a key within the delay only one is kept. Late rows are dropped;
        rows without an event time are kept, since they could never be forgotten. See also :meth:`dropDuplicates`.

        Args:
            subset: names of the columns that make the key.
            name: the store's name.
            logged: False for a store without changelog.

        Raises:
            TopologyException: there is no ``withWatermark`` before it, or an argument is of the wrong kind.
        """
        return self._deduplicated("dropDuplicatesWithinWatermark", subset, name, logged, find_call_site())

    def to_table(self, *, name: str | None = None, logged: bool = True, history: str | None = None) -> KTable:
        """Keep the newest row of each message key, as ``KStream.toTable`` of Kafka Streams.

        A row whose message has no value deletes its key's row. Rows without a key are left out. For a table by another
        column, put ``repartition("user")`` before it.

        Args:
            name: the store's name; its changelog is ``<application.id>-<name>-changelog``.
            logged: False for a store without changelog, as in :meth:`GroupedStream.agg`.
            history: how far back rows are known, as of :meth:`StreamsBuilder.table`.

        Raises:
            TopologyException: the columns that hold the message key are not there, or an argument is of the wrong kind.
        """
        call_site = find_call_site()
        key = key_places(self._rows)
        if key is None:
            raise TopologyException(
                f"{call_site}: to_table() keeps a row for each message key, and no column here holds it unchanged: "
                'give stream(key=String("user")) and keep that column, or put repartition("user") before it'
            )
        kept = keep_newest(self._record, self._rows, key, name, logged, "to_table()", call_site, history=history)
        made: KTable = frame_at(self._record, kept)
        return made

    def join(  # type: ignore[override]
        self,
        other: Any,
        on: Any = None,
        how: str = "inner",
        *,
        within: str | tuple[str, str] | None = None,
        name: str | None = None,
        refresh: str | None = None,
        grace: str | None = None,
    ) -> KStream:
        """Join with another stream, with a table, or with a DataFrame.

        **A stream.** Rows match if their columns ``on`` are equal and their event times are at most ``within`` apart,
        as in PySpark's join of two streams with such a condition. Both need a ``withWatermark`` before the join. An
        unmatched row is emitted, if ``how`` asks for it, once the watermark has passed all possible matches. The result
        has the columns ``on``, then the left stream's others, then the right one's; its timestamp is the later of both
        (``KStream.join`` of Kafka Streams).

        **A table.** Each row looks up its key in the table (``KStream.join(KTable)``): as of the row's place in time in
        the micro-batch; in a global table, as of now; in a table with a history, as of the row's own time, which is
        that of a ``withWatermark`` before the join, or the record's timestamp (KIP-889). Table updates alone emit
        nothing. The result has the stream's columns, then the table's without its key.

        **A DataFrame.** Each row is joined with the DataFrame, as in PySpark's join of a stream with a static
        DataFrame. It is evaluated for each micro-batch and broadcast, so it should be small. With ``refresh`` it is
        collected instead, up to 64 MiB, and reused until it is that old.

        Args:
            other: a KStream; or a KTable, of ``builder.table`` or ``to_table()``; or a GlobalKTable, or a DataFrame.
            on: names of columns that both sides have; of a table those that it is keyed by. Of a global table also any
                condition: each row meets all rows of the table then. Of two streams also a
                condition, ``F.expr("user = viewer and seen between at and at + interval 1 hour")``, or a list of such
                and of names: what is equal, and the range of the two event times, instead of ``within``; of an inner
                join also anything else.
            how: ``"inner"`` or ``"left"``; of two streams also ``"right"``, ``"full"``, ``"left_semi"`` and
                ``"left_anti"``.
            within: of two streams, such as ``"10 minutes"``; or how much earlier and how much later than the left row
                the right one may be: with ``("0 seconds", "1 hour")`` it comes at the same time or up to an hour later.
            name: of two streams: the store's name. Of a table: that of the repartition topic, if one is needed: the
                stream's rows must be where the table's are, and both source topics must have equally many partitions.
            refresh: of a DataFrame: how old its rows may get, such as ``"10 minutes"``; None to evaluate it anew for
                each micro-batch.
            grace: of a table with a history: how long rows wait for the table's that come late, such as ``"5 minutes"``
                (KIP-923): until the watermark, or else the newest timestamp, has passed their time by that. They go
                through a repartition topic then; ``name`` is that of the store in which they wait, too.

        Raises:
            TopologyException: an argument is of the wrong kind, the table cannot be looked into, or two streams have no
                bound in time.
        """
        call_site = find_call_site()
        if grace is not None and not isinstance(other, KTable | GlobalKTable):
            raise _of_another_join("grace", grace, "a table with a history", call_site)
        if within is not None and not isinstance(other, KStream):
            raise _of_another_join("within", within, "two streams", call_site)
        if refresh is not None:
            if isinstance(other, KStream | KTable | GlobalKTable):
                raise _of_another_join("refresh", refresh, "a DataFrame", call_site)
            made: KStream = frame_at(
                self._record, collected_join(self._record, self._rows, other, on, how, refresh, call_site)
            )
            return made
        frame = self._other(other, call_site)
        call = Call(
            call_site, "join", name=check_name(name, call_site), within=both_ways(within, call_site), grace=grace
        )
        joined: KStream = self._made(call, lambda: DataFrame.join(self, frame, on, how), other)
        return joined

    def crossJoin(self, other: Any) -> KStream:
        """Join each row with each of a DataFrame, as ``DataFrame.crossJoin``."""
        call = Call(find_call_site(), "crossJoin")
        frame = self._other(other, call.call_site)
        made: KStream = self._made(call, lambda: DataFrame.crossJoin(self, frame))
        return made

    def repartition(self, *cols: str, name: str | None = None, partitions: int | None = None) -> KStream:  # type: ignore[override]
        """Write the rows to an internal topic by another key and read them again.

        A ``groupBy`` of these columns needs no further topic then.

        Args:
            cols: names of the columns that make the new key.
            name: the topic is called ``<application.id>-<name>-repartition``.
            partitions: its partition count; by default that of the source topics.

        Raises:
            TopologyException: an argument is missing or of the wrong kind.
        """
        call_site = find_call_site()
        rows = repartitioned(self._record, self._rows, flat(cols), name, partitions, call_site)
        made: KStream = frame_at(self._record, rows)
        return made

    def _deduplicated(self, method: str, subset: Any, name: Any, logged: Any, call_site: CallSite) -> KStream:
        if subset is None:
            # Kafka's own columns make each row another one.
            subset = [field.name for field in without_kafka(self._rows.schema)]
        if isinstance(subset, list | tuple) and not subset:
            raise TopologyException(f'{call_site}: {method}() names no columns, such as {method}(["id"])')
        if not isinstance(logged, bool):
            raise TopologyException(f"{call_site}: {method}() takes logged=True or logged=False, not {logged!r}")
        plain = "dropDuplicates" if method == "drop_duplicates" else method
        call = Call(call_site, method, name=check_name(name, call_site), logged=logged)
        made: KStream = self._made(call, lambda: getattr(DataFrame, plain)(self, subset))
        return made

    def _other(self, other: Any, call_site: CallSite) -> Any:
        """Return what is joined with, as a DataFrame."""
        if isinstance(other, GlobalKTable) and other._record is self._record:
            return other._rows.frame
        if isinstance(other, Ending) and other._record is self._record:
            if other._rows.pending is not None:
                raise TopologyException(other._rows.pending)
            return other
        if isinstance(other, DataFrame) and not isinstance(other, Ending):
            return other
        raise TopologyException(
            f"{call_site}: join() takes a stream or a table of the same builder, or a DataFrame, not {other!r}"
        )

    def _require_stream(self, other: Any, call: Call) -> None:
        if not isinstance(other, KStream) or other._record is not self._record:
            raise TopologyException(f"{call.where}: {call.method}() takes a stream of the same builder, not {other!r}")


@public_calls
class KTable(Ending):
    """The newest row of each group: a DataFrame whose rows are the groups that a micro-batch changed.

    Made by ``agg``, ``StreamsBuilder.table`` and ``KStream.to_table``. Of its steps only filters may drop rows: what
    passed and passes no more is deleted behind the table, as ``KTable.filter`` of Kafka Streams does.
    """

    _kind = "KTable"
    _supported = _ROW_STEPS | {"groupBy", "join", "outputMode", "to_stream"}
    _refuses = frozenset({"foreach", "repartition", "withWatermark"})

    def join(self, other: Any, on: Any = None, how: str = "inner") -> KTable:  # type: ignore[override]
        """Join with another table, as ``KTable.join`` of Kafka Streams.

        **By key.** One row for each key, updated when either side changes, and deleted when a side's row disappears
        (``inner``: either side's; ``left`` and ``right``: that side's, while columns of a missing other row are null;
        ``full``: both). The result has the key's columns, then the left table's others, then the right one's; its
        timestamp is the later of both rows.

        Both tables must have the same key columns, and their topics the same number of partitions. The join has no
        store of its own: its rows are found in the stores of both tables.

        **By a foreign key** (KIP-213). If ``on`` is the right table's key and columns of the left one, each left row
        is joined with the right row that it references, and keeps its own key; ``inner`` or ``left``. When a right row
        changes, all rows that reference it do. The left table's changes and the answers go through a repartition topic
        each, so the tables' topics may have different partition counts; the result is stored.

        **By anything else.** Both tables go through repartition topics by the equal columns, and are stored by them.
        The result has a row for each pair. Without equal columns each task gets a copy of the right table.

        Args:
            other: a KTable of the same builder. Steps may follow ``table()`` or ``to_table()`` before the join: the
                stored table is that of their results.
            on: names of columns of both tables, or a condition.
            how: ``"inner"``, ``"left"``, ``"right"``, ``"full"``, ``"left_semi"`` or ``"left_anti"``, or PySpark's
                synonyms.

        Raises:
            TopologyException: an argument has the wrong type.
        """
        call = Call(find_call_site(), "join")
        if not isinstance(other, KTable) or other._record is not self._record:
            hint = "; a stream looks into a table, stream.join(table, ...)" if isinstance(other, KStream) else ""
            if isinstance(other, GlobalKTable) or (isinstance(other, DataFrame) and not isinstance(other, Ending)):
                hint = "; streams look into those: to_stream() first, which gives each change of the table by itself"
            raise TopologyException(
                f"{call.where}: join() of a table takes a table of the same builder, not {other!r}{hint}"
            )
        made: KTable = self._made(call, lambda: DataFrame.join(self, other, on, how), other)
        return made

    def to_stream(self) -> KStream:
        """Return the changes as a stream, each a row of its own, as ``KTable.toStream`` of Kafka Streams.

        A key that changes several times in a micro-batch has one row, its last. The stream can be filtered change by
        change: the newest row of a group that passes stays in the sink, though newer ones do not pass. Grouping it
        counts changes, not groups. Behind ``agg(...)`` it has one row for each group of a micro-batch, not one for each
        input row; running aggregates have that, ``F.sum("x").over(window)``.
        """
        stream: KStream = frame_at(self._record, as_stream(self._record, self._rows, "to_stream()", find_call_site()))
        return stream

    def outputMode(self, outputMode: str) -> KStream | KTable:
        """Choose which rows go on, as ``DataStreamWriter.outputMode``.

        Args:
            outputMode: ``"update"``, each change of a group, which is what happens without it; or ``"append"``, the
                final row of each window, once, when it is over. That takes ``withWatermark`` and a grouping by
                ``F.window``, and is a stream: its rows never change.

        Raises:
            TopologyException: it is neither.
        """
        call_site = find_call_site()
        if outputMode == "update":
            return self
        if outputMode != "append":
            raise TopologyException(
                f'{call_site}: outputMode() takes "update" or "append", not {outputMode!r}; {WHOLE_TABLE}'
            )
        if isinstance(self._rows.node, TableJoinNode):
            raise TopologyException(
                f'{call_site}: outputMode("append") gives the final row of each window, and a join of tables has none'
            )
        rows = as_stream(self._record, self._rows, 'outputMode("append")', call_site, final=True)
        stream: KStream = frame_at(self._record, rows)
        return stream

    def groupBy(self, *cols: Any, name: str | None = None) -> GroupedStream:  # type: ignore[override]
        """Group the table's rows, as ``KTable.groupBy`` of Kafka Streams: results always reflect its current rows.

        When a row changes or is deleted, its old version is subtracted from its old group, and the new one is added to
        its new group. So only aggregates that can subtract are available: count, sum, avg, min, max, the variances and
        correlations, DISTINCT ones, collect_set, mode, median and the percentiles. An empty group is deleted. The rows
        go through a repartition topic.

        Args:
            cols: names, Columns, or a list of them; none for totals of all rows. These stay when no row is left.
            name: of the repartition topic.

        Raises:
            TopologyException: a column is of the wrong kind.
        """
        return GroupedStream(self, flat(cols), name, find_call_site())

    groupby = groupBy  # type: ignore[assignment]


def _of_another_join(name: str, value: object, others: str, call_site: CallSite) -> TopologyException:
    return TopologyException(f"{call_site}: {name}={value!r} of join() is for {others}; leave it out")


KINDS.update({False: KStream, True: KTable})
