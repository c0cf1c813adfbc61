"""Changes: what a change costs where a statement stands behind it, as what is stored grows tenfold.

Topics hold a record for each key. An instance reads them and waits until nothing is left to do; then records of random
keys come, all at once, and their rate is measured up to the end of the last micro-batch, topics between included. A
cost by change has the same rate whatever the number of keys; one by table has a tenth of it. A run counts only if what
it wrote comes to what Spark SQL says of the same rows.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions

from bench.children import BenchError, Instance
from bench.machine import load_average
from bench.nexmark.answers import differing, rows_of
from bench.nexmark.compare import newest
from bench.results import read_messages
from bench.state import disk_bytes
from bench.statements import SOURCES, STATEMENTS, Rows
from bench.systems import RELAY, Variant
from bench.topics import run_topics
from bench.workload import PARTITIONS, write_values

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark.sql import SparkSession


__all__ = ["Growth", "changes"]

_MODULE: Final = "bench.statement_instance"
_TIMEOUT_S: Final = 900.0
_SEED: Final = 20_26
_FIGURES: Final = ("changes_per_s", "changes_per_cpu_s", "bytes_a_key")


@dataclass(frozen=True, slots=True)
class Growth:
    """How much there is.

    Attributes:
        keys: of each source, from few to many.
        changes: measured records.
    """

    keys: tuple[int, ...] = (10_000, 100_000)
    changes: int = 20_000


def changes(
    bootstrap_servers: str,
    spark: SparkSession,
    *,
    growth: Growth,
    names: Collection[str],
    repeats: int,
    on_figures: Callable[[dict[str, Any]], None],
) -> list[dict[str, Any]]:
    """Run statements with each number of keys.

    Args:
        bootstrap_servers: the broker.
        spark: a session, for SQL's answers.
        growth: how much there is.
        names: which statements.
        repeats: runs of each.
        on_figures: called with each run's figures.

    Returns:
        A line of medians for each statement and number of keys, with the ratio to its own with the fewest.

    Raises:
        BenchError: an instance failed, or what it wrote is not exact.
    """
    lines: list[dict[str, Any]] = []
    for name in names:
        for keys in growth.keys:
            runs = []
            for number in range(1, repeats + 1):
                runs.append(_run(bootstrap_servers, spark, name, keys, growth.changes))
                on_figures({"bench": "changes", "statement": name, "keys": keys, "run": number, **runs[-1]})
            medians = {figure: round(statistics.median(run[figure] for run in runs)) for figure in _FIGURES}
            few = next((line for line in lines if line["statement"] == name), medians)
            ratio = round(medians["changes_per_s"] / few["changes_per_s"], 2)
            line = {"bench": "changes", "statement": name, "keys": keys, "runs": repeats}
            lines.append({**line, **medians, "to_few_keys": ratio})
    return lines


def _run(bootstrap_servers: str, spark: SparkSession, name: str, keys: int, count: int) -> dict[str, Any]:
    statement, load_before = STATEMENTS[name], load_average()
    made = {source: Rows(source, keys, _SEED + place) for place, source in enumerate(statement.sources)}
    with (
        run_topics(bootstrap_servers, *statement.sources, "changes-out") as (*topics, sink),
        tempfile.TemporaryDirectory(prefix="bench-changes-") as temporary,
    ):
        sources, folder = dict(zip(statement.sources, topics, strict=True)), Path(temporary) / "state"
        for source, topic in sources.items():
            write_values(bootstrap_servers, topic, made[source].parts(made[source].filling(), PARTITIONS))
        orders = Variant(RELAY).orders(bootstrap_servers=bootstrap_servers, source="", sink=sink, folder=folder)
        orders |= {"statement": name, "sources": sources, "look_s": 0.01, "still": True}
        changing = made[statement.changing]
        with Instance(_MODULE, orders) as instance:
            instance.batches_until_still(keys * len(sources), _TIMEOUT_S)
            cpu = instance.cpu.seconds()
            changed = changing.parts(changing.changes(count), PARTITIONS)
            write_values(bootstrap_servers, sources[statement.changing], changed)
            batches = instance.batches_until_still(count, _TIMEOUT_S)
            instance.stop()
        stored = disk_bytes(folder)
        rows = _check(bootstrap_servers, spark, name, made, sink)
    busy = [batch for batch in batches if batch["read"]]
    return {
        "changes_per_s": round(count / (busy[-1]["ended"] - busy[0]["began"])),
        "changes_per_cpu_s": round(count / (busy[-1]["cpu_s"] - cpu)),
        "bytes_a_key": round(stored / (keys * len(sources))),
        "read": sum(batch["read"] for batch in busy),
        "rows": rows,
        "exact": True,
        "load_average_before": load_before,
    }


def _check(bootstrap_servers: str, spark: SparkSession, name: str, made: dict[str, Rows], sink: str) -> int:
    """Compare what a statement wrote with Spark SQL's answer; return how many rows it has.

    Raises:
        BenchError: they differ.
    """
    statement = STATEMENTS[name]
    for source, rows in made.items():
        key, columns = SOURCES[source]
        names, values = (pa.array(column) for column in zip(*rows.rows.values(), strict=True))
        parsed = functions.from_json("value", columns).alias("value")
        frame = spark.createDataFrame(pa.table({key: names, "value": values})).select(key, parsed)
        frame.select(key, "value.*").createOrReplaceTempView(source)
    wanted = spark.sql(statement.text).toArrow()
    records = (
        (message.key(), message.value()) for messages in read_messages(bootstrap_servers, sink) for message in messages
    )
    values = newest(records) if statement.is_of_tables else (value or b"{}" for _, value in records)
    parts = list(rows_of(values, wanted.schema.remove_metadata()))
    found = pa.concat_tables([wanted.schema.remove_metadata().empty_table(), *parts])
    if lines := differing(found, wanted, frozenset()):
        raise BenchError(f"{name} is not exact: {'; '.join(lines)}")
    return len(found)
