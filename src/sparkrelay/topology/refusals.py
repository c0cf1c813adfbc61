"""What a stream cannot do, and what to write instead.

An endless stream has no order, no end and no total; a DataFrame method that needs one would run, and be wrong. So
everything that is not known to be right for one row at a time is refused, by name, where it is written.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["NO_MISSING_COLUMNS", "remedy"]

NO_MISSING_COLUMNS: Final = (
    "takes no allowMissingColumns=True: add what a stream lacks to it before, for example "
    'withColumn("note", F.lit(None).cast("string"))'
)

_NO_ORDER: Final = "an endless stream has no order; sort where the result is read"
_REMEMBERS: Final = "a table has one row of each group already; for the first of its changes put to_stream() before it"
_NOT_HERE: Final = "a topology is a description and holds no rows; write with to(topic), and read that topic"
_ONE_TOPIC: Final = "tables have groups of their own; put the streams together before groupBy()"
_CACHE: Final = "each micro-batch is read once; nothing is there to be kept"
_GROUPED: Final = 'groupBy("a") and agg(...) are there'

_REMEDIES: Final = {
    **dict.fromkeys(("orderBy", "sort", "sortWithinPartitions", "rank"), _NO_ORDER),
    **dict.fromkeys(("dropDuplicates", "drop_duplicates", "dropDuplicatesWithinWatermark"), _REMEMBERS),
    **dict.fromkeys(("unionAll", "merge"), "use unionByName(other)"),
    **dict.fromkeys(("union", "unionByName"), _ONE_TOPIC),
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
            "write",
            "writeTo",
        ),
        _NOT_HERE,
    ),
    **dict.fromkeys(
        ("schema", "columns", "dtypes", "printSchema", "explain"), "columns are known when KafkaStreams is made"
    ),
    **dict.fromkeys(("cache", "persist", "unpersist", "checkpoint", "localCheckpoint"), _CACHE),
    **dict.fromkeys(("rollup", "cube", "groupingSets", "pivot"), _GROUPED),
    "na": 'dropna(subset=["a"]) and fillna({"a": 0}) are there',
    "replace": 'say it per column: withColumn("a", F.when(F.col("a") == "old", "new").otherwise(F.col("a")))',
    **dict.fromkeys(("limit", "offset", "sample"), "a stream has no end to count from; use where(...)"),
    **dict.fromkeys(("coalesce", "repartitionByRange"), 'use repartition("column", partitions=N)'),
    **dict.fromkeys(
        ("map", "mapValues", "flatMap", "mapInArrow", "mapInPandas", "rdd"), "use withColumn with a udf or pandas_udf"
    ),
    **dict.fromkeys(("writeStream", "sink", "through"), "use to(topic)"),
    **dict.fromkeys(("groupby", "groupByKey", "group_by"), "use groupBy(...)"),
    "distinct": 'name the columns that make two rows the same: dropDuplicates(["a"])',
    "alias": "columns of both sides of a join must differ; rename them, withColumnRenamed(...)",
    "withWatermark": "use it on the stream, before groupBy()",
    "selectKey": 'use repartition("column"), or group by the column',
    "toTable": 'use groupBy("key").agg(...)',
    "count": 'group first: groupBy("a").count()',
    "agg": 'group first: groupBy("a").agg(...)',
    "toDF": "use withColumnRenamed(old, new)",
    "foreachBatch": "it is for streams: to_stream() makes one of a table's changes",
    "colRegex": "name the columns in select(...)",
    "withColumnsRenamed": "use withColumnRenamed(old, new) for each",
}


def remedy(name: str, supported: Collection[str]) -> str:
    """Return what to write instead of ``name``."""
    if name in supported:
        return f"{name} is for another kind of object"
    if name in _REMEDIES:
        return _REMEDIES[name]
    lowered = {word.lower(): word for word in supported}
    near = difflib.get_close_matches(name.lower(), lowered, n=1)
    if near:
        return f"did you mean {lowered[near[0]]}?"
    return f'a column is written F.col("{name}"); steps are {", ".join(sorted(supported))}'
