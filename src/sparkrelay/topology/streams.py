"""KStream and KTable, the chainable API. Every call returns a new object and records a node."""

# ruff: noqa: N802, N803 - PySpark's names

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sparkrelay.errors import TopologyException
from sparkrelay.topology.call_site import find_call_site
from sparkrelay.topology.calls.deduplication import deduplication, subset_of
from sparkrelay.topology.calls.lookups import data_frame_join, is_data_frame, look_up
from sparkrelay.topology.calls.rankings import BestRows, RankedStream, best_rows, is_ranking
from sparkrelay.topology.calls.regrouping import grouping_columns, key_words, repartition_for, spread_by, table_lineage
from sparkrelay.topology.calls.row_steps import RowSteps, check_column_name, flat
from sparkrelay.topology.calls.stateful_steps import Ranking
from sparkrelay.topology.calls.stored_tables import keep_newest, key_of
from sparkrelay.topology.calls.stream_joins import join_streams
from sparkrelay.topology.calls.table_joins import join_tables
from sparkrelay.topology.columns import argument_text, column_path, is_session_window, output_name, quoted
from sparkrelay.topology.global_table import GlobalKTable
from sparkrelay.topology.grouped_stream import GroupedStream
from sparkrelay.topology.lineage import Lineage
from sparkrelay.topology.naming import check_name
from sparkrelay.topology.nodes import (
    ActionNode,
    AggregationNode,
    EmittingNode,
    GroupingNode,
    RepartitionNode,
    StepNode,
    UnionNode,
)
from sparkrelay.topology.public_calls import public_calls
from sparkrelay.topology.refusals import NO_MISSING_COLUMNS
from sparkrelay.topology.structure import Foreach, ForeachBatch, Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.operators.emitting.step import EmittingStep
    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.nodes import Node, Record
    from sparkrelay.types import BatchId

_ROW_STEPS: Final = frozenset(
    {
        "select",
        "selectExpr",
        "withColumn",
        "withColumns",
        "withColumnRenamed",
        "drop",
        "transform",
        "where",
        "filter",
        "dropna",
        "fillna",
        "show",
        "to",
    }
)


@public_calls
class _RankedRows(RowSteps):
    """Rows of which the first ones of each key can be kept."""

    __slots__ = ()

    # What these three return depends on whether a column is over a window, which no type says.

    def withColumn(self, colName: str, col: Any) -> Any:
        """Add or replace a column, as ``DataFrame.withColumn``.

        With ``F.row_number().over(Window.partitionBy("key").orderBy(F.desc("x")))`` it is the row's place in its key.
        A filter on the place must follow, such as ``where("n <= 10")``; the result is a KTable, keyed by the window's
        key and the place. Rows that are equal in the order keep the order of their arrival; in a table, whose rows
        change, any fixed order. Rows whose key is null are dropped, as in ``groupBy``. Rankings of a table go through a
        repartition topic and keep all rows in a store of their own, since a deletion can promote any of them.

        With ``F.rank()`` rows that are equal in the order have one place, however many they are. So none has a key of
        its own, and no table can hold them: it is of windows that end, with ``withWatermark`` before it, a column of
        ``F.window`` in ``partitionBy`` and ``outputMode("append")`` behind ``where``. That is a stream of the best rows
        of each window, once it is over.
        """
        call_site = find_call_site()
        if not is_ranking(col):
            return super().withColumn(colName, col)
        return RankedStream(check_column_name("withColumn", colName, call_site), col, self._keep_best, call_site)

    def where(self, condition: Any) -> Any:
        """Keep the rows for which ``condition`` (SQL text or a Column) holds, as ``DataFrame.where``.

        ``F.row_number().over(...) <= 10`` keeps the first rows of each key, as in :meth:`withColumn`: a KTable, in
        which the place is called ``row_number``, and with ``F.rank()`` ``rank``.
        """
        best = best_rows(condition, call_site := find_call_site())
        return super().where(condition) if best is None else self._keep_best(best, call_site)

    def filter(self, condition: Any) -> Any:
        """Keep the rows for which ``condition`` holds; the same as :meth:`where`."""
        best = best_rows(condition, call_site := find_call_site())
        return super().filter(condition) if best is None else self._keep_best(best, call_site)

    def _keep_best(self, best: BestRows, call_site: CallSite) -> KTable:
        raise NotImplementedError


@public_calls
class KStream(_RankedRows):
    """Rows of an endless stream. Made by ``StreamsBuilder.stream``.

    Usage::

        flights.where("dep_delay is not null").groupBy("carrier").agg(F.avg("dep_delay")).to("delays")
    """

    _kind = "KStream"
    _supported = _ROW_STEPS | {
        *("dropDuplicates", "dropDuplicatesWithinWatermark", "drop_duplicates", "foreach", "foreachBatch", "groupBy"),
        "join",
        *("repartition", "to_table", "union", "unionByName", "withWatermark"),
    }

    __slots__ = ()

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
        call_site = find_call_site()
        for name, value in (("eventTime", eventTime), ("delayThreshold", delayThreshold)):
            if not isinstance(value, str) or not value.strip():
                raise TopologyException(
                    f'{call_site}: withWatermark() takes a column\'s name and a delay such as "10 minutes", not '
                    f"{name}={value!r}"
                )
        return self._step("withWatermark", (eventTime, delayThreshold), call_site)

    def _keep_best(self, best: BestRows, call_site: CallSite) -> KTable:
        plain = tuple(quoted((column,)) for column in best.partition)
        node, _ = spread_by(self._record, self._node, self._lineage, plain, best.partition, None, call_site)
        return _best_kept(self._record, node, best, call_site)

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
        action = Foreach(f, call_site, f"foreach({argument_text(f)})")
        self._record.add(ActionNode(self._node, action, check_name(name, call_site), call_site))

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
        action = ForeachBatch(func, call_site, f"foreachBatch({argument_text(func)})")
        self._record.add(ActionNode(self._node, action, check_name(name, call_site), call_site))

    def unionByName(self, other: KStream, allowMissingColumns: bool = False) -> KStream:
        """Put the rows of two streams together, as ``DataFrame.unionByName``; ``KStream.merge`` of Kafka Streams.

        Rows of each stay in their order; between the two there is none. A ``groupBy`` behind it goes through a
        repartition topic, and ``withWatermark`` for it stands behind the union.

        Args:
            other: of the same builder, with columns of the same names and types, in any order.
            allowMissingColumns: False; a column that one of them lacks has to be added before.

        Raises:
            TopologyException: it is no stream of this builder, or columns may be missing.
        """
        call_site = find_call_site()
        if allowMissingColumns:
            raise TopologyException(f"{call_site}: unionByName() {NO_MISSING_COLUMNS}")
        return self._union("unionByName", other, call_site)

    def union(self, other: KStream) -> KStream:
        """Put the rows of two streams together; the same as :meth:`unionByName`.

        PySpark matches columns by position. Where that would give a different result, it is refused.
        """
        return self._union("union", other, find_call_site())

    def _union(self, method: str, other: Any, call_site: CallSite) -> KStream:
        if not isinstance(other, KStream) or other._record is not self._record:
            raise TopologyException(f"{call_site}: {method}() takes a stream of the same builder, not {other!r}")
        node = UnionNode(self._node, other._node, Step(method, (), {}, call_site, f"{method}(...)"), call_site)
        return KStream(self._record, self._record.add(node), Lineage())

    def groupBy(self, *cols: Any, name: str | None = None) -> GroupedStream[KTable]:
        """Group rows, as ``DataFrame.groupBy``.

        If the grouping columns do not hold the message key, unchanged since it was read, the rows go through a
        repartition topic first: then all rows of a group are in one task. Rows whose key is null are left out, as in
        Kafka Streams; with a repartition topic that is when the only column of its key is null.

        Args:
            cols: names, Columns such as ``F.window("time", "1 day")``, or a list of them.
            name: of the repartition topic, if one is needed.

        Raises:
            TopologyException: there are no columns, or one is of the wrong kind.
        """
        call_site = find_call_site()
        keys = grouping_columns("groupBy", flat(cols), call_site)
        words = key_words(keys)
        node, after = spread_by(
            self._record, self._node, self._lineage, keys, words, check_name(name, call_site), call_site
        )
        located = self._lineage.locate(keys)
        decided_by = None if located is None else located.columns
        record = self._record
        return _grouped(
            record, node, keys, after, words, call_site, decided_by, lambda made: KStream(record, made, Lineage())
        )

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
        key = self._lineage.key()
        if key is None:
            raise TopologyException(
                f"{call_site}: to_table() keeps a row for each message key, and no column here holds it unchanged: "
                'give stream(key=String("user")) and keep that column, or put repartition("user") before it'
            )
        node = keep_newest(self._record, self._node, key, name, logged, "to_table()", call_site, history=history)
        return KTable(self._record, node, Lineage.of_repartition(key_of(node)))

    def join(
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
            on: names of columns that both sides have; of a table those that it is keyed by. Of two streams also a
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
        if isinstance(other, KStream) and other._record is self._record:
            if refresh is not None:
                raise _of_another_join("refresh", refresh, "a DataFrame", call_site)
            left, right = (self._node, self._lineage), (other._node, other._lineage)
            node = join_streams(self._record, left, right, on, how, within, name, call_site)
            return KStream(self._record, node, Lineage())
        if within is not None:
            raise _of_another_join("within", within, "two streams", call_site)
        if is_data_frame(other):
            arguments, more = data_frame_join(other, on, how, refresh, call_site)
            return self._step("join", arguments, call_site, more)
        if not isinstance(other, KTable | GlobalKTable) or other._record is not self._record:
            raise TopologyException(
                f"{call_site}: join() takes a stream or a table of the same builder, or a DataFrame, not {other!r}"
            )
        if refresh is not None:
            raise _of_another_join("refresh", refresh, "a DataFrame", call_site)
        looking, lineage = look_up(
            self._record, self._node, self._lineage, other._node, on, how, name, grace, call_site
        )
        return KStream(self._record, looking, lineage)

    def repartition(self, *cols: str, name: str | None = None, partitions: int | None = None) -> KStream:
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
        columns = []
        for col in grouping_columns("repartition", flat(cols), call_site):
            path = column_path(col)
            if path is None or len(path) != 1 or output_name(col) != path[0]:
                raise TopologyException(
                    f"{call_site}: repartition() takes names of columns; give {argument_text(col)} one first, "
                    'withColumn("name", ...)'
                )
            columns.append(path[0])
        if partitions is not None and (
            isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1
        ):
            raise TopologyException(
                f"{call_site}: partitions={partitions!r} of repartition() must be a number from 1 on"
            )
        check_name(name, call_site)
        node = RepartitionNode(
            self._node, tuple(columns), name, tuple(columns), partitions, explicit=True, call_site=call_site
        )
        return KStream(self._record, self._record.add(node), Lineage.of_repartition(columns))

    def _deduplicated(self, method: str, subset: Any, name: Any, logged: Any, call_site: CallSite) -> KStream:
        columns = subset_of(method, subset, call_site)
        return self._emitting(
            columns, lambda node: deduplication(node, columns, method, logged, call_site), name, call_site
        )

    def _emitting(
        self, columns: tuple[str, ...], step: Callable[[Node], EmittingStep], name: Any, call_site: CallSite
    ) -> KStream:
        """Add a step that keeps a store by ``columns`` and emits a stream; rows of a key come into one task first."""
        plain = tuple(quoted((column,)) for column in columns)
        node, _ = spread_by(self._record, self._node, self._lineage, plain, columns, None, call_site)
        found = self._lineage.locate(plain)
        located = columns if found is None or found.columns is None else found.columns
        emitting = EmittingNode(node, step(node), check_name(name, call_site), located)
        return KStream(self._record, self._record.add(emitting), Lineage())


@public_calls
class KTable(_RankedRows):
    """The newest row of each group: its rows are the groups that a micro-batch changed.

    Made by ``agg``, ``StreamsBuilder.table`` and ``KStream.to_table``. Of its steps only filters may drop rows: what
    passed and passes no more is deleted behind the table, as ``KTable.filter`` of Kafka Streams does.
    """

    _kind = "KTable"
    _supported = _ROW_STEPS | {"groupBy", "join", "outputMode", "to_stream"}

    __slots__ = ()

    def to_stream(self) -> KStream:
        """Return the changes as a stream, each a row of its own, as ``KTable.toStream`` of Kafka Streams.

        A key that changes several times in a micro-batch has one row, its last. The stream can be filtered change by
        change: the newest row of a group that passes stays in the sink, though newer ones do not pass. Grouping it
        counts changes, not groups.
        """
        node = StepNode(self._node, None, find_call_site())
        return KStream(self._record, self._record.add(node), Lineage())

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
                f'{call_site}: outputMode() takes "update" or "append", not {outputMode!r}; the whole table after each '
                "micro-batch would be written again and again"
            )
        node = StepNode(self._node, None, call_site, final=True)
        return KStream(self._record, self._record.add(node), Lineage())

    def join(self, other: Any, on: Any = None, how: str = "inner") -> KTable:
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

        Args:
            other: a KTable of the same builder. Steps may follow ``table()`` or ``to_table()`` before the join: the
                stored table is that of their results.
            on: names of the key columns of both tables; or of the right one, as columns of the left one.
            how: ``"inner"``, ``"left"``, ``"right"`` or ``"full"``, or PySpark's synonyms.

        Raises:
            TopologyException: an argument has the wrong type, or the tables have other keys.
        """
        call_site = find_call_site()
        if not isinstance(other, KTable) or other._record is not self._record:
            hint = "; a stream looks into a table, stream.join(table, ...)" if isinstance(other, KStream) else ""
            if isinstance(other, GlobalKTable) or is_data_frame(other):
                hint = "; streams look into those: to_stream() first, which gives each change of the table by itself"
            raise TopologyException(
                f"{call_site}: join() of a table takes a table of the same builder, not {other!r}{hint}"
            )
        sides = (self._node, self._lineage), (other._node, other._lineage)
        node = join_tables(self._record, *sides, on, how, call_site)
        key = key_of(node) if isinstance(node, AggregationNode) else node.columns
        return KTable(self._record, node, Lineage.of_repartition(key))

    def groupBy(self, *cols: Any, name: str | None = None) -> GroupedStream[KTable]:
        """Group the table's rows, as ``KTable.groupBy`` of Kafka Streams: results always reflect its current rows.

        When a row changes or is deleted, its old version is subtracted from its old group, and the new one is added to
        its new group. So only aggregates that can subtract are available: count, sum, avg, the variances and
        correlations, DISTINCT ones, collect_set, mode, median and the percentiles. An empty group is deleted. The rows
        go through a repartition topic.

        Args:
            cols: names, Columns, or a list of them.
            name: of the repartition topic.

        Raises:
            TopologyException: there are no columns, or one is of the wrong kind.
        """
        call_site = find_call_site()
        keys = grouping_columns("groupBy", flat(cols), call_site)
        if any(map(is_session_window, keys)):
            raise TopologyException(
                f"{call_site}: groupBy() of a table takes no F.session_window(): its rows change, and sessions cannot "
                "be taken apart again; group the stream that the table is made of, or its changes, to_stream()"
            )
        words, name = key_words(keys), check_name(name, call_site)
        node, after = repartition_for(self._record, self._node, keys, words, name, call_site, changes=True)
        return _grouped(self._record, node, keys, after, words, call_site)

    def _keep_best(self, best: BestRows, call_site: CallSite) -> KTable:
        if best.ties:
            raise TopologyException(
                f"{call_site}: {best.text}: rank() is of the rows of a stream, in windows that end; of a table, whose "
                "rows change, F.row_number() keeps the first ones"
            )
        plain = tuple(quoted((column,)) for column in best.partition)
        node, _ = repartition_for(self._record, self._node, plain, best.partition, None, call_site, changes=True)
        return _best_kept(self._record, node, best, call_site)


def _of_another_join(name: str, value: object, others: str, call_site: CallSite) -> TopologyException:
    return TopologyException(f"{call_site}: {name}={value!r} of join() is for {others}; leave it out")


def _best_kept(record: Record, node: Node, best: BestRows, call_site: CallSite) -> KTable:
    """Write down a table of the first rows of each key, where those of one key are in one task."""
    columns = best.partition if best.ties else (*best.partition, best.number)
    keys = tuple(quoted((column,)) for column in columns)
    words = ("top", str(best.count), "by", *best.partition)
    grouping = record.add(GroupingNode(node, keys, words, best.text, call_site))
    ranking = Ranking(best.number, best.order, best.count, best.ties)
    kept = AggregationNode(grouping, (), None, True, best.text, call_site, newest=True, ranking=ranking)
    return KTable(record, record.add(kept), Lineage())


def _grouped(  # noqa: PLR0917 - as they are needed
    record: Record,
    node: Node,
    keys: tuple[Any, ...],
    after: tuple[Any, ...],
    words: tuple[str, ...],
    call_site: CallSite,
    located: tuple[str, ...] | None = None,
    stream: Callable[[Node], KStream] | None = None,
) -> GroupedStream[KTable]:
    """Write a grouping down, by ``after``: what the keys that the user wrote are where the rows are.

    ``located`` are the columns that have rows in their tasks without a repartition topic.
    """
    text = f"groupBy({', '.join(argument_text(key) for key in keys)})"
    grouping = record.add(GroupingNode(node, after, words, text, call_site))
    lineage = table_lineage(node, located, keys)
    return GroupedStream(record, grouping, lambda kept: KTable(record, kept, lineage), stream)
