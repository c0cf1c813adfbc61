"""The topologies of cases, as our DSL has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from tests.oracle.topology.specs import RIGHT, ROW, TABLES, VALUE

from sparkrelay import GlobalKTable, Json, KTable, StreamsBuilder, String

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay import KStream, Topology

__all__ = ["FIELDS", "RIGHT_AT", "RIGHT_FIELDS", "any_before", "built", "stands_before"]

Case = dict[str, Any]

#: Of values.
FIELDS: Final = ("a", "b", "c", "s")
#: Of what two streams are joined to: the right record's time, and all fields of its side.
RIGHT_AT: Final = f"{RIGHT}at"
RIGHT_FIELDS: Final = (*(f"{RIGHT}{name}" for name in FIELDS), RIGHT_AT)


def built(*cases: Case) -> Topology:
    """Return the topology of cases, which have their topics and stores each for itself."""
    builder = StreamsBuilder()
    for case in cases:
        _add(case, builder)
    return builder.build()


def stands_before(case: Case, node: Case, op: str) -> bool:
    """Return whether such a step stands before what a node gives, or is it."""
    return any_before(case, node, lambda step: step["op"] == op)


def any_before(case: Case, node: Case, passes: Callable[[Case], bool]) -> bool:
    """Return whether a step that passes stands before what a node gives, or is it."""
    nodes = {other["id"]: other for other in case["spec"]}
    before = [nodes[node[name]] for name in ("of", "with") if name in node]
    return passes(node) or any(any_before(case, other, passes) for other in before)


def _add(case: Case, builder: StreamsBuilder) -> None:
    made: dict[int, Any] = {}
    tables = {"aggregate", "having", "table_join", "regroup", *TABLES}
    grouped = {node["id"] for node in case["spec"] if node["op"] in tables}
    more = {
        node["id"]: (*columns,)
        for op, columns in (("lookup", ("p", "q")), ("stream_join", ("at", *RIGHT_FIELDS)))
        for node in case["spec"]
        if stands_before(case, node, op)
    }
    for node in case["spec"]:
        if node["op"] == "merge":
            made[node["id"]] = made[node["of"]].unionByName(made[node["with"]])
        elif node["op"] == "stream_join":
            made[node["id"]] = _joined(node, made[node["of"]], made[node["with"]])
        elif node["op"] == "table_join":
            key = "named" if "foreign" in node else "key"
            fields = (f"{name} AS {node['as']}{name}" for name in ("p", "q"))
            right = made[node["with"]].selectExpr(f"key AS {key}", *fields)
            left = made[node["of"]]
            if "foreign" in node:
                left = left.withColumn(key, F.expr(f"translate({node['foreign']}, 'xyz', 'klm')"))
            joined = left.join(right, key, node["how"])
            # A further join goes on from what is joined itself.
            ends = "foreign" in node and not any(
                other["op"] == "table_join" and other["of"] == node["id"] for other in case["spec"]
            )
            made[node["id"]] = joined.drop(key) if ends else joined
        else:
            table = made.get(node.get("table"))
            of = node.get("of")
            fields = () if of in grouped else (*FIELDS, *more.get(of, ()))
            made[node["id"]] = _made(node, builder, made.get(of), fields=fields, table=table)


def _joined(node: Case, left: KStream, right: KStream) -> KStream:
    """Join two streams by the key, each by the times of its records; with both times in milliseconds."""
    time = F.col("kafka.timestamp")
    renamed = (F.col(name).alias(f"{RIGHT}{name}") for name in FIELDS)
    grace = f"{node['grace']} milliseconds"
    sides = (
        left.select("key", *FIELDS, time.alias("at")).withWatermark("at", grace),
        right.select("key", *renamed, time.alias(RIGHT_AT)).withWatermark(RIGHT_AT, grace),
    )
    both = sides[0].join(sides[1], "key", node["how"], within=f"{node['within']} milliseconds")
    return both.withColumn("at", F.unix_millis("at")).withColumn(RIGHT_AT, F.unix_millis(RIGHT_AT))


def _made(
    node: Case, builder: StreamsBuilder, of: Any, *, fields: tuple[str, ...], table: Any
) -> KStream | KTable | GlobalKTable:
    match node["op"]:
        case "table":
            history = _interval(node, "history")
            return builder.table(node["topic"], key=String("key"), value=Json(ROW), name=node["store"], history=history)
        case "regroup":
            columns = [_aggregate(name, *field).alias(f"n{at}") for at, (name, *field) in enumerate(node["aggs"])]
            groups: KTable = of.groupBy(node["by"]).agg(*columns, name=node["store"])
            return groups
        case "to_table":
            rows = of.selectExpr("key", "a AS p", "s AS q")
            kept: KTable = rows.to_table(name=node["store"], history=_interval(node, "history"))
            return kept
        case "lookup":
            grace = _interval(node, "grace")
            joined: KStream = of.join(table, node.get("on", "key"), node["how"], grace=grace)
            return joined
        case "global_table":
            return builder.global_table(node["topic"], key=String(node["on"]), value=Json(ROW), name=node["store"])
        case "stream":
            return builder.stream(node["topic"], key=String("key"), value=Json(VALUE))
        case "filter" | "having":
            stream: KStream = of.where(f"{node['field']} {node['is']} {node['than']}")
        case "map":
            stream = of.withColumn(node["field"], F.expr(f"{node['left']} {node['by']} {node['right']}"))
        case "aggregate":
            groups = [node["by"]]
            if {"window", "gap"} & node.keys():
                # The struct of Kafka's own columns does not go through a repartition topic.
                of = of.select("key", *FIELDS, F.col("kafka.timestamp").alias("at"))
            if "window" in node:
                groups.insert(0, F.window("at", f"{node['window']} milliseconds"))
            if "gap" in node:
                groups.insert(0, F.session_window("at", f"{node['gap']} milliseconds").alias("window"))
            if "grace" in node:
                # A session is over for Kafka Streams when the newest time is later than its last record by more than
                # gap and grace, here when it is so by as much.
                grace = node["grace"] + ("gap" in node)
                of = of.withWatermark("at", f"{grace} milliseconds")
            columns = [_aggregate(name, *field).alias(f"n{at}") for at, (name, *field) in enumerate(node["aggs"])]
            table: KTable = of.groupBy(*groups).agg(*columns, name=node["store"])
            return table.outputMode("append") if node.get("final") else table
        case _:
            stream = of
            (of.select(*fields) if fields else of).to(node["topic"], value=Json())
    return stream


def _interval(node: Case, name: str) -> str | None:
    return f"{node[name]} milliseconds" if name in node else None


def _aggregate(function: str, field: str = "*") -> Any:
    return getattr(F, function)(field)
