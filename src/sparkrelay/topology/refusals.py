"""What a stream cannot do, and what to write instead.

An endless stream has no order, no end and no total; a DataFrame method that needs one would run, and be wrong. So
everything that is not known to be right for one row at a time is refused, by name, where it is written.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

_NO_END: Final = "a stream has no end to count from; use where(...)"
_NO_ORDER: Final = "an endless stream has no order; sort where the result is read"
ONE_ROW_EACH: Final = (
    "a table has one row of each group already; for the first of its changes put to_stream() before it"
)
_NOT_HERE: Final = "a topology is a description and holds no rows; write with to(topic), and read that topic"
NO_UNION_OF_BOTH: Final = (
    "a stream and a table have no union: make a table of the stream, to_table(), or a stream of the table, to_stream()"
)
_CACHE: Final = "each micro-batch is read once; nothing is there to be kept"
_TO_STREAM: Final = "it is for streams: to_stream() makes one of a table's changes"
_COLUMNS: Final = 'use withColumn(...) or select(...), with a udf or pandas_udf for Python: withColumn("a", upper("a"))'
_UDF: Final = "use withColumn with a udf or pandas_udf"
_EXPLODE: Final = 'use select("key", F.explode("values").alias("value")), which makes a row of each element'
_NEW_KEY: Final = 'use repartition("column"), or group or join by the column'
_PROCESSOR: Final = 'use groupBy("key").transformWithState(...): state and timers in Python'
_STATE: Final = 'it belongs to a processor: groupBy("key").transformWithState(...) has the state of each key'
_WINDOW: Final = 'use groupBy("key", F.window("time", "10 minutes")), or F.session_window("time", "5 minutes")'
_FINAL: Final = (
    'use outputMode("append") after agg(...), with withWatermark() before groupBy(): each window is written once, '
    "when it has ended"
)
_AGGREGATES: Final = (
    'use agg(F.sum("x"), F.max("y"), ...); if no aggregate of Spark\'s fits, transformWithState(...) runs Python'
)
_SINK: Final = "use to(topic); foreachBatch(fn) writes elsewhere"
_SOURCE: Final = "sources are Kafka topics: use stream(topic), table(topic) or global_table(topic)"

STREAM_ALONE: Final = 'rows come from the stream alone; write an inner join, or stream.join(frame, on, "left")'
STATIC: Final = (
    "takes a DataFrame that has an end, from spark.read; for what a topic holds of each key use builder.table(topic)"
)
OTHER_WINDOWS: Final = (
    "of window functions there are the aggregates that one row can be added to, lag, lead and row_number. "
    'F.row_number() and F.rank() alone keep the first rows of each key: withColumn("n", F.row_number().over('
    'Window.partitionBy("key").orderBy(F.desc("x")))).where("n <= 10")'
)
FRAME: Final = (
    "a frame of rows ends at the current row or at most 1,000 rows beside it, rowsBetween(-9, 0); an interval of event "
    "times ends at the current row, RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW, and needs withWatermark()"
)
FRAME_ORDER: Final = (
    'rows are ordered by their event time alone, orderBy("time"), with withWatermark("time", "10 minutes") before it; '
    'or by arrival, orderBy("kafka.offset")'
)
FRAME_BEHIND: Final = (
    "its rows come from lead() or from a frame that ends behind them, once their successors are there, and no "
    "watermark says how late that is. Put both into one select; or partition by the same columns and count rows, ROWS "
    "BETWEEN 9 PRECEDING AND CURRENT ROW; or say between the two how late they may be, "
    'withWatermark("time", "1 hour")'
)
RUNNING_OF_TABLE: Final = (
    "running aggregates are of a stream's rows, which do not change; put to_stream() before it, to have one for each "
    "change, or group"
)
RANK_OF_TABLE: Final = (
    "rank() is of the rows of a stream, in windows that end; of a table, whose rows change, F.row_number() keeps the "
    "first ones"
)
SESSIONS_OF_TABLE: Final = (
    "sessions merge as rows come, and rows of a table change and go. Put to_stream() before it, which groups each "
    "change"
)
SESSIONS_WITHOUT_END: Final = (
    "sessions merge as rows come, and without a watermark every session there has been would be kept for ever; put "
    'withWatermark("time", "10 minutes") before groupBy(), how late rows may come'
)
FINAL_WITHOUT_END: Final = (
    'needs to know when a window is over: put withWatermark("time", "10 minutes") before groupBy(), with the column of '
    "event times and how late rows may come"
)
NO_RANGE: Final = (
    'takes within=, such as within="10 minutes", how far apart the event times of two rows may be that go together, or '
    'within=("0 seconds", "1 hour"), how much earlier and how much later the right one may be; or a condition of the '
    "two event times with both bounds. Without it every row would be kept for ever. To look up what a topic holds of "
    "each key just now, join with builder.table(topic) instead"
)
KEY_OF_PAIRS: Final = (
    "would mix rows of several tasks under one key: an old row could be deleted after the new one was written. Leave "
    "key= out; the key is then the equal columns and the keys of both rows. Or keep one row of each key first: "
    'F.row_number().over(Window.partitionBy("key").orderBy("x")) and where("n = 1")'
)
NOT_IN: Final = (
    "NOT IN with a subquery is null where either side is: write NOT EXISTS with a = b in its WHERE, or LEFT ANTI JOIN"
)
SUBQUERY: Final = (
    "a subquery here is EXISTS, IN, one row by the key of a table, or a total of all rows of a table; write others as "
    "joins"
)
FIRST_ROWS: Final = "LIMIT of a table comes behind ORDER BY, and takes a number from 1 to 1,000"
MATCHES_OF_TABLE: Final = (
    "joins a table with a DataFrame, of which none or several rows may match: what once matched would stay in the sink "
    "when the row changes. Put to_stream() before it, which joins each change, or write the DataFrame to a topic and "
    'join with builder.table("topic", ...)'
)
MANY_ROWS_OF_TABLE: Final = (
    "of a table may drop rows or repeat them: what it once let through would stay in the sink when the row changes. "
    "Use where(...), or put to_stream() before it, to change each update by itself"
)
CUT_BY_SPARK: Final = (
    "its result would depend on which rows happen to be in one micro-batch. What must see all rows of a key is done by "
    "groupBy(...).agg(...)"
)
WHOLE_TABLE: Final = "the whole table after each micro-batch would be written again and again"

#: What is refused wherever it is written, DataFrame or SQL -> why, and what to write instead.
STEPS: Final = {
    "Other window functions": OTHER_WINDOWS,
    "Frames that have no end, or intervals without a watermark": FRAME,
    "Running aggregates in another order": FRAME_ORDER,
    "Running aggregates in the order of event times behind `lead`": FRAME_BEHIND,
    "Running aggregates of a table": RUNNING_OF_TABLE,
    "`rank()` of a table": RANK_OF_TABLE,
    "`session_window` of a table": SESSIONS_OF_TABLE,
    "`session_window` without a watermark": SESSIONS_WITHOUT_END,
    '`outputMode("append")` without a watermark': FINAL_WITHOUT_END,
    '`outputMode("complete")`': WHOLE_TABLE,
    "A join of two streams without a range of time": NO_RANGE,
    "A right or full join of a stream with a DataFrame": STREAM_ALONE,
    "A join with a DataFrame of `spark.readStream`": STATIC,
    "`key=` of `to()` after a join of tables by columns that are not a key": KEY_OF_PAIRS,
    "A union of a stream and a table": NO_UNION_OF_BOTH,
    "`dropDuplicates` of a table": ONE_ROW_EACH,
    "`explode`, `unpivot` and the like": MANY_ROWS_OF_TABLE,
    "A join of a table with a DataFrame": MATCHES_OF_TABLE,
    "`monotonically_increasing_id()`, `spark_partition_id()`, `input_file_name()`": CUT_BY_SPARK,
    "`NOT IN` with a subquery, of columns that may be null, of a stream or of several columns": NOT_IN,
    "`LIMIT` of a table without `ORDER BY`": FIRST_ROWS,
    "Other subqueries of streams and tables": SUBQUERY,
}

#: What DataFrames and other libraries' streams have, and what to write instead.
REMEDIES: Final = {
    **dict.fromkeys(("orderBy", "sort", "sortWithinPartitions", "rank"), _NO_ORDER),
    **dict.fromkeys(("merge", "concat"), "use unionByName(other)"),
    **dict.fromkeys(
        (
            *("collect", "describe", "executionInfo", "first", "head", "inputFiles", "isEmpty", "mergeInto"),
            *("pandas_api", "plot", "summary", "tail", "take", "toArrow", "toJSON", "toLocalIterator", "toPandas"),
            *("transpose", "write", "writeTo", "zipWithIndex"),
        ),
        _NOT_HERE,
    ),
    **dict.fromkeys(("cache", "persist", "unpersist", "checkpoint", "localCheckpoint", "storageLevel"), _CACHE),
    **dict.fromkeys(
        ("approxQuantile", "corr", "cov", "crosstab", "freqItems", "stat"),
        'group first, and use an aggregate: groupBy("a").agg(F.corr("x", "y"))',
    ),
    **dict.fromkeys(
        ("createGlobalTempView", "createOrReplaceGlobalTempView", "registerTempTable"),
        'use createOrReplaceTempView("name"), and builder.sql(...)',
    ),
    "foreachPartition": "use foreach(fn), or foreachBatch(fn)",
    **dict.fromkeys(("groupingSets", "pivot"), 'use groupBy("a") and agg(...)'),
    **dict.fromkeys(("limit", "offset", "randomSplit", "sample", "sampleBy"), _NO_END),
    **dict.fromkeys(("coalesce", "repartitionById", "repartitionByRange"), 'use repartition("column", partitions=N)'),
    **dict.fromkeys(("mapInArrow", "mapInPandas", "rdd"), _UDF),
    **dict.fromkeys(("writeStream", "sink", "through", "to_topic", "toTopic"), _SINK),
    **dict.fromkeys(("groupByKey", "group_by"), "use groupBy(...)"),
    "joinWith": 'use join(other, "column", how)',
    "count": 'use groupBy("a").count(), or groupBy().count(), a table of one row',
    # Kafka Streams.
    **dict.fromkeys(("map", "mapValues", "transformValues", "processValues", "apply", "update"), _COLUMNS),
    **dict.fromkeys(("flatMap", "flatMapValues", "flatTransform", "flatTransformValues"), _EXPLODE),
    "filterNot": 'use where("not (...)")',
    "selectKey": _NEW_KEY,
    **dict.fromkeys(("split", "branch"), 'use several where() on one stream: s.where("a > 0"), s.where("a <= 0")'),
    **dict.fromkeys(("peek", "print"), "use show() to print rows, or foreach(fn) to call a function for each row"),
    "leftJoin": 'use join(other, "column", "left")',
    "outerJoin": 'use join(other, "column", "full")',
    "process": _PROCESSOR,
    "suppress": _FINAL,
    **dict.fromkeys(("windowedBy", "tumbling_window", "hopping_window", "session_window", "sliding_window"), _WINDOW),
    **dict.fromkeys(("reduce", "aggregate"), f'group first: groupBy("a"), then {_AGGREGATES.removeprefix("use ")}'),
    "cogroup": 'use unionByName(other) before groupBy("a"), or aggregate both and join the two tables',
    "queryableStoreName": 'give the store a name, agg(..., name="totals"), and query that',
}

#: The same of one kind of object, where it differs.
OF_KIND: Final[dict[str, dict[str, str]]] = {
    "KStream": {
        **dict.fromkeys(("toTable", "toKTable"), "use to_table()"),
        **dict.fromkeys(("to_stream", "toStream"), "it is a stream already"),
        "outputMode": "use it on the table that agg(...) returns",
        "suppress": "use it on windows that are grouped: " + _FINAL.removeprefix("use "),
    },
    "KTable": {
        **dict.fromkeys(("foreach", "foreachBatch", "peek"), _TO_STREAM),
        "withWatermark": "use it on the stream, before groupBy()",
        "repartition": "it is for streams; groupBy(...) and join(...) move a table's rows themselves",
        **dict.fromkeys(("toTable", "to_table"), "it is a table already"),
        "toStream": "use to_stream()",
        **dict.fromkeys(("flatMap", "flatMapValues", "flatTransform"), f"put to_stream() before it; then {_EXPLODE}"),
        "process": f"put to_stream() before it; then {_PROCESSOR}",
    },
    "GroupedStream": {
        **dict.fromkeys(("reduce", "aggregate"), _AGGREGATES),
        **dict.fromkeys(("windowedBy", "tumbling_window", "hopping_window"), _WINDOW),
        "cogroup": 'use unionByName(other) before groupBy("a"), or aggregate both and join the two tables',
        "suppress": _FINAL,
        **{
            name: f'use agg(F.{name}("a"))'
            for name in ("median", "mode", "first", "last", "stddev", "variance", "percentile", "collect_list")
        },
        **dict.fromkeys(("pivot", "rollup", "cube"), 'use agg(F.sum(F.when(F.col("a") == "x", F.col("n"))), ...)'),
        **dict.fromkeys(
            ("apply", "applyInPandas", "applyInArrow", "applyInPandasWithState", "process"),
            "use transformWithState(...) or transformWithStateInPandas(...)",
        ),
        "withWatermark": "use it on the stream, before groupBy()",
        **dict.fromkeys(("to", "show", "foreachBatch", "where", "select"), "aggregate first: agg(...) or count()"),
    },
    "StreamsBuilder": {
        **dict.fromkeys(("globalTable", "GlobalTable"), "use global_table(topic, key=, value=)"),
        **dict.fromkeys(("addStateStore", "addGlobalStore", "addReadOnlyStateStore"), _STATE),
        **dict.fromkeys(("addProcessor", "addSource", "addSink"), "use stream(topic), steps such as where(), and to()"),
        **dict.fromkeys(("topic", "dataframe", "readStream", "read", "load", "format", "Table"), _SOURCE),
        "describe": "use build().describe()",
    },
}


def not_row_wise(kind: str) -> str:
    """Return why a node of a plan is not possible, and what to write instead."""
    return OF_NODES.get(
        kind, f"{kind} is not row-wise: its result would depend on which rows happen to be in one micro-batch"
    )


#: Nodes of analysed plans that no pipeline has -> why, and what to write instead.
OF_NODES: Final = {
    "Sort": _NO_ORDER,
    **dict.fromkeys(("GlobalLimit", "LocalLimit", "Offset", "Tail", "Sample"), _NO_END),
    **dict.fromkeys(
        ("LocalRelation", "LogicalRDD", "OneRowRelation", "Range"),
        "its rows come from no topic: begin with a stream or a table, and join with others",
    ),
    "Intersect": "it compares whole tables: write EXISTS, or LEFT SEMI JOIN",
    "Except": "it compares whole tables: write NOT EXISTS, or LEFT ANTI JOIN",
    "LateralJoin": "write it as a join, or as columns; explode() makes several rows of one",
    **dict.fromkeys(
        ("Repartition", "RepartitionByExpression"), 'use repartition("column"), which goes through a topic'
    ),
    **dict.fromkeys(("MapInArrow", "MapInPandas"), _UDF),
    **dict.fromkeys(
        (
            "FlatMapGroupsInPandasWithState",
            "TransformWithStateInPandas",
            "TransformWithStateInPySpark",
        ),
        'put it behind the builder: builder.add(df).groupBy("key").transformWithState(...)',
    ),
}


def remedy(kind: str, name: str, supported: Collection[str]) -> str:
    """Return what to write instead of ``name``, a method that objects of a kind do not have.

    Args:
        kind: ``KStream``, ``KTable``, ``GroupedStream`` or ``StreamsBuilder``.
        name: what the user wrote.
        supported: the methods that there are.
    """
    found = OF_KIND.get(kind, {}).get(name) or (REMEDIES.get(name) if kind.startswith("K") else None)
    if found is not None:
        return found
    lowered = {word.lower().replace("_", ""): word for word in supported}
    near = difflib.get_close_matches(name.lower().replace("_", ""), lowered, n=1)
    if near:
        return f"did you mean {lowered[near[0]]}?"
    column = f'a column is written F.col("{name}"); ' if kind.startswith("K") else ""
    return f"{column}steps are {', '.join(sorted(supported))}"
