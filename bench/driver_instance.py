"""A process with a Spark session that takes records through ``TopologyTestDriver``, one at a time.

It reports as ``bench.instance`` says, and ``steps`` once for each query: ``query``, ``first_s`` of the step that also
makes plans and starts jobs, and ``seconds`` of the steps after it. A step pipes a record in and reads the output.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from bench.instance import Reporter, Stopping, run_instance
from bench.relay_queries import build_topology
from bench.windows import DELAY_S, WINDOW_S
from sparkrelay.runtime.instance.quick_session import spark_session
from sparkrelay.testing import TopologyTestDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = ("totals", "lookup", "windows")
_USER = "u000001"
_PROFILE = {"name": "one", "country": "C1", "points": 7919}
_TABLE = "profiles"
_BEGAN_S = 1_767_225_600


def run(orders: dict[str, Any], report: Reporter, stopping: Stopping) -> None:
    """Take the records, then wait for the end."""
    spark = spark_session("bench", **orders["spark"])
    report("spark", at=time.time(), version=spark.version)
    for query in QUERIES:
        seconds, rows = take(spark, query, orders["steps"])
        check(query, rows, orders["steps"])
        report("steps", query=query, first_s=seconds[0], seconds=seconds[1:])
    while not stopping.wait(1.0):
        pass
    spark.stop()


def take(spark: SparkSession, query: str, count: int) -> tuple[list[float], list[dict[str, Any]]]:
    """Return how long a first step and each of ``count`` others took, and the rows that these wrote.

    The first one is the table's row, or a record that no query keeps.
    """
    wanted = {"query": query, "source": "records", "sink": "results", "table": _TABLE}
    wanted |= {"window_s": WINDOW_S, "delay_s": DELAY_S, "final": True}
    seconds: list[float] = []
    rows: list[dict[str, Any]] = []
    with TopologyTestDriver(build_topology(wanted), spark=spark) as driver:
        records, results = driver.create_input_topic("records"), driver.create_output_topic("results")
        record = {"amount": 1.0, "action": "view", "n": -1, "note": "", "time": _BEGAN_S}
        steps = [(driver.create_input_topic(_TABLE), _PROFILE) if query == "lookup" else (records, record)]
        steps += [
            (records, {**record, "action": "buy", "n": number, "time": _BEGAN_S + number}) for number in range(count)
        ]
        for topic, value in steps:
            began = time.perf_counter()
            topic.pipe_input(_USER, value)
            rows += results.read_rows()
            seconds.append(time.perf_counter() - began)
    return seconds, rows


def check(query: str, rows: list[dict[str, Any]], count: int) -> None:
    """Compare what came out with what must have.

    Raises:
        ValueError: it is something else.
    """
    if query == "totals":
        expected = [{"user": _USER, "orders": n, "total": float(n)} for n in range(1, count + 1)]
    elif query == "lookup":
        found = {"country": _PROFILE["country"], "points": _PROFILE["points"]}
        expected = [{"user": _USER, "amount": 1.0, "n": n, **found} for n in range(count)]
    else:
        over = max(count - 1 - DELAY_S, 0) // WINDOW_S
        starts = ((_BEGAN_S + number * WINDOW_S) * 1000 for number in range(over))
        expected = [{"user": _USER, "start": at, "orders": WINDOW_S, "total": float(WINDOW_S)} for at in starts]
    if rows != expected:
        raise ValueError(f"{query} is not exact: {len(rows)} rows, {len(expected)} expected; the last: {rows[-1:]}")


if __name__ == "__main__":
    sys.exit(run_instance(run))
