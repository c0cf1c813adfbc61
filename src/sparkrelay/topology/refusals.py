"""What a stream cannot do, and what to write instead.

An endless stream has no order, no end and no total; a DataFrame method that needs one would run, and be wrong. So
everything that is not known to be right for one row at a time is refused, by name, where it is written.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

NO_MISSING_COLUMNS: Final = (
    "takes no allowMissingColumns=True: add what a stream lacks to it before, for example "
    'withColumn("note", F.lit(None).cast("string"))'
)

_NO_ORDER: Final = "an endless stream has no order; sort where the result is read"
_REMEMBERS: Final = "a table has one row of each group already; for the first of its changes put to_stream() before it"
_NOT_HERE: Final = "a topology is a description and holds no rows; write with to(topic), and read that topic"
_ONE_TOPIC: Final = "tables have groups of their own; put the streams together before groupBy()"
_CACHE: Final = "each micro-batch is read once; nothing is there to be kept"
_GROUPED: Final = 'use groupBy("a") and agg(...)'
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

#: What DataFrames and other libraries' streams have, and what to write instead.
_REMEDIES: Final = {
    **dict.fromkeys(("orderBy", "sort", "sortWithinPartitions", "rank"), _NO_ORDER),
    **dict.fromkeys(("unionAll", "merge", "concat"), "use unionByName(other)"),
    **dict.fromkeys(
        ("intersect", "intersectAll", "subtract", "exceptAll"), "it compares whole tables; a stream has no end"
    ),
    **dict.fromkeys(
        (
            "collect",
            "head",
            "first",
            "take",
            "tail",
            "toPandas",
            "toLocalIterator",
            "isEmpty",
            "toArrow",
            "toJSON",
            "describe",
            "summary",
            "write",
            "writeTo",
        ),
        _NOT_HERE,
    ),
    **dict.fromkeys(("cache", "persist", "unpersist", "checkpoint", "localCheckpoint"), _CACHE),
    **dict.fromkeys(("rollup", "cube", "groupingSets", "pivot"), _GROUPED),
    **dict.fromkeys(("limit", "offset", "sample"), "a stream has no end to count from; use where(...)"),
    **dict.fromkeys(("coalesce", "repartitionByRange"), 'use repartition("column", partitions=N)'),
    **dict.fromkeys(("mapInArrow", "mapInPandas", "rdd"), _UDF),
    **dict.fromkeys(("writeStream", "sink", "through", "to_topic", "toTopic"), _SINK),
    **dict.fromkeys(("groupby", "groupByKey", "group_by"), "use groupBy(...)"),
    "distinct": 'name the columns that make two rows the same: dropDuplicates(["a"])',
    **dict.fromkeys(("lateralJoin", "joinWith"), 'use join(other, "column", how)'),
    "count": 'group first: groupBy("a").count()',
    "agg": 'group first: groupBy("a").agg(...)',
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
_OF_KIND: Final[dict[str, dict[str, str]]] = {
    "KStream": {
        **dict.fromkeys(("toTable", "toKTable"), "use to_table()"),
        **dict.fromkeys(("to_stream", "toStream"), "it is a stream already"),
        "outputMode": "use it on the table that agg(...) returns",
        "suppress": "use it on windows that are grouped: " + _FINAL.removeprefix("use "),
    },
    "KTable": {
        **dict.fromkeys(("dropDuplicates", "drop_duplicates", "dropDuplicatesWithinWatermark"), _REMEMBERS),
        **dict.fromkeys(("union", "unionByName", "unionAll", "merge", "concat"), _ONE_TOPIC),
        **dict.fromkeys(("foreach", "foreachBatch", "peek"), _TO_STREAM),
        "withWatermark": "use it on the stream, before groupBy()",
        "repartition": "it is for streams; groupBy(...) and join(...) move a table's rows themselves",
        **dict.fromkeys(("toTable", "to_table"), "it is a table already"),
        "toStream": "use to_stream()",
        "distinct": _REMEMBERS,
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
    return _OF_NODES.get(
        kind, f"{kind} is not row-wise: its result would depend on which rows happen to be in one micro-batch"
    )


#: Nodes of analysed plans that no pipeline has -> why, and what to write instead.
_OF_NODES: Final = {
    "Sort": _NO_ORDER,
    **dict.fromkeys(
        ("GlobalLimit", "LocalLimit", "Offset", "Tail", "Sample"), "a stream has no end to count from; use where(...)"
    ),
    **dict.fromkeys(
        ("LocalRelation", "LogicalRDD", "OneRowRelation", "Range"),
        "its rows come from no topic: begin with a stream or a table, and join with others",
    ),
    **dict.fromkeys(("Intersect", "Except"), "it compares whole tables; a stream has no end"),
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
    found = _OF_KIND.get(kind, {}).get(name) or (_REMEDIES.get(name) if kind.startswith("K") else None)
    if found is not None:
        return found
    lowered = {word.lower().replace("_", ""): word for word in supported}
    near = difflib.get_close_matches(name.lower().replace("_", ""), lowered, n=1)
    if near:
        return f"did you mean {lowered[near[0]]}?"
    column = f'a column is written F.col("{name}"); ' if kind.startswith("K") else ""
    return f"{column}steps are {', '.join(sorted(supported))}"
