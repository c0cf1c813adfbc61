"""What ``bench.consumer`` measures, part by part; see docs/benchmarks.md."""

from __future__ import annotations

import resource
import statistics
import subprocess
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.children import BenchError, Instance
from bench.consumer_data import PARTITIONS, fill, stamped
from bench.machine import load_average
from sparkrelay.devkafka.jars import kafka_classpath
from sparkrelay.devkafka.topics import create_topic, delete_topic
from sparkrelay.java import require_java

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

__all__ = ["crowd", "drain", "java_figures", "latency", "percentiles", "ratios", "rebalance"]

_CHILD = "bench.consumer_child"
_CODECS = ("none", "zstd", "lz4")
#: kafka-python needs packages of their own for these.
_CANNOT = {("kafka-python", "zstd"), ("kafka-python", "lz4")}
#: They are slow enough for a tenth of the records.
_SLOW = frozenset({"aiokafka", "kafka-python"})
_BASE = "confluent-kafka"
_WARM_UP = 20_000
_TIMEOUT_S = 600.0
_START_S = 150.0
_RATE = 1000
_POLL_S = 5.0


def drain(
    servers: str, systems: Sequence[str], *, records: int, repeats: int, on_figures: Callable[[dict[str, Any]], None]
) -> list[dict[str, Any]]:
    """Read a full topic, once for each codec; returns medians with their ratios to confluent-kafka and Java.

    Raises:
        BenchError: a consumer failed, or did not read every record.
    """
    results = []
    for codec in _CODECS:
        topics = {records: f"drain-{codec}", records // 10: f"drain-{codec}-small"}
        for count, topic in topics.items():
            on_figures({"bench": "drain", "codec": codec, "loaded": fill(servers, topic, count, codec)})
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in systems if (name, codec) not in _CANNOT}
        for number in range(1, repeats + 1):
            for name, figures in runs.items():
                count = records // 10 if name in _SLOW else records
                load_before = load_average()
                one = (
                    _drain_java(servers, topics[count], count)
                    if name == "Java"
                    else _drain_python(servers, topics[count], count, name)
                )
                figures.append(one)
                on_figures(
                    {"bench": "drain", "codec": codec, "system": name, "run": number, **one, "load": load_before}
                )
        for topic in topics.values():
            delete_topic(servers, topic)
        medians = {name: _medians(figures) for name, figures in runs.items()}
        results += [
            {"bench": "drain", "codec": codec, "system": name, "runs": repeats, **figures, **ratios(figures, medians)}
            for name, figures in medians.items()
        ]
    return results


def ratios(figures: dict[str, Any], others: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Return how many times as fast as confluent-kafka and Java, as far as they ran.

    Beside Java all of the time counts, beside confluent-kafka what came after the first batch.
    """
    found = {}
    for name, rate in ((_BASE, "steady_rps"), ("Java", "rps")):
        if rate in figures and rate in others.get(name, {}):
            found[f"to_{name}"] = round(figures[rate] / max(others[name][rate], 1), 2)
    return found


def _drain_python(servers: str, topic: str, records: int, system: str) -> dict[str, Any]:
    orders = {"task": "drain", "system": system, "servers": servers, "topic": topic, "partitions": PARTITIONS}
    with Instance(_CHILD, {**orders, "records": records, "warm_up": min(records, _WARM_UP)}) as child:
        report = child.wait_for("drained", _TIMEOUT_S)
        child.stop()
    if report["records"] != records:
        raise BenchError(f"{system} read {report['records']} of {records} records of {topic}")
    figures = {"rps": round(records / report["seconds"]), "seconds": round(report["seconds"], 3)}
    if steady := report["steady_records"]:  # a small topic may come as one batch
        figures["steady_rps"] = round(steady / report["steady_seconds"])
        figures["records_per_cpu_s"] = round(steady / max(report["cpu_s"], 1e-3))
    return figures


def _drain_java(servers: str, topic: str, records: int) -> dict[str, Any]:
    command = [
        require_java(),
        "-cp",
        kafka_classpath(artifact="kafka-tools"),
        "org.apache.kafka.tools.ConsumerPerformance",
    ]
    command += ["--bootstrap-server", servers, "--topic", topic, "--num-records", str(records), "--hide-header"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if run.returncode:
        raise BenchError(f"Java's performance consumer failed: {run.stderr[-2000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**java_figures(run.stdout, records), "cpu_with_start_s": round(cpu, 2)}


def java_figures(text: str, records: int) -> dict[str, Any]:
    """Read what ConsumerPerformance prints; the rate is that of its time of fetching, without joining the group.

    Raises:
        BenchError: it is not what it should be, or records are missing.
    """
    for line in reversed(text.splitlines()):
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 10:
            break
    else:
        raise BenchError(f"Java's performance consumer printed no figures: {text[-500:]!r}")
    # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s
    if int(fields[4]) < records:
        raise BenchError(f"Java read {fields[4]} of {records} records")
    return {"rps": round(float(fields[9])), "seconds": round(float(fields[7]) / 1000, 3)}


def latency(
    servers: str, systems: Sequence[str], *, seconds: float, repeats: int, on_figures: Callable[[dict[str, Any]], None]
) -> list[dict[str, Any]]:
    """Measure from producing a record to having it in hand, at 1,000 records a second."""
    # A broker that has just started is slow: whoever comes first would pay for it.
    _waits_of(servers, systems[0], "latency-warm", seconds)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in systems}
    for number in range(1, repeats + 1):
        for name in systems:
            waits = _waits_of(servers, name, f"latency-{number}-{name}", seconds)
            runs[name].append({**percentiles(waits), "load": load_average()})
            on_figures({"bench": "latency", "system": name, "run": number, **runs[name][-1]})
    return [
        {"bench": "latency", "system": name, "runs": repeats, **_medians(figures)} for name, figures in runs.items()
    ]


def _waits_of(servers: str, system: str, topic: str, seconds: float) -> list[float]:
    """Return how long each record took, in seconds."""
    create_topic(servers, topic, partitions=PARTITIONS)
    orders = {"task": "latency", "system": system, "servers": servers, "topic": topic, "partitions": PARTITIONS}
    with Instance(_CHILD, orders) as child:
        child.wait_for("ready", _START_S)
        # What a consumer loads with its first record is loaded by these. Some find the end of a topic late, and never
        # see the first of them.
        stamped(servers, topic, rate=_RATE, seconds=min(seconds, 5.0))
        _wait_for_silence(child)
        waits = _waits(child, stamped(servers, topic, rate=_RATE, seconds=seconds))
        child.stop()
    delete_topic(servers, topic)
    return waits


def _wait_for_silence(child: Instance) -> None:
    """Wait until records have come, and then none for a while."""
    came = False
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        report = child.next_report(2.0)
        if came and (report is None or not report["waits"]):
            return
        came = came or (report is not None and bool(report["waits"]))
    raise BenchError("no record came within 60 s, or they never ended")


def _waits(child: Instance, count: int) -> list[float]:
    """Return the waits of so many records."""
    waits: list[float] = []
    deadline = time.monotonic() + 60.0
    while len(waits) < count:
        if time.monotonic() > deadline:
            raise BenchError(f"{len(waits)} of {count} records came")
        if (report := child.next_report(2.0)) is not None:
            waits += report["waits"]
    return waits


def percentiles(waits: Sequence[float]) -> dict[str, float]:
    """Return p50, p99 and the worst, in milliseconds."""
    millis = np.asarray(waits) * 1000
    return {
        name: round(float(value), 2)
        for name, value in zip(("p50_ms", "p99_ms", "max_ms"), np.percentile(millis, (50, 99, 100)), strict=True)
    }


def crowd(
    servers: str,
    systems: Collection[str],
    *,
    members: int,
    seconds: float,
    part: str,
    on_figures: Callable[[dict[str, Any]], None],
) -> list[dict[str, Any]]:
    """Have members of one group in one process, each with its partition, and nothing to read."""
    results = []
    create_topic(servers, part, partitions=members)
    for name in systems:
        orders = {"task": "crowd", "system": name, "servers": servers, "topic": part, "members": members}
        with Instance(_CHILD, {**orders, "group": f"{part}-{name}", "poll_s": _POLL_S}) as child:
            try:
                child.wait_for("ready", _START_S)
            except BenchError as error:
                # A peer that does not bear it says so in its row; ours must.
                if name == "SparkRelay":
                    raise
                results.append({"bench": part, "system": name, "members": members, "failed": str(error)[:200]})
                on_figures(results[-1])
                continue
            time.sleep(min(seconds, 10.0))
            before, began = child.cpu.seconds(), time.monotonic()
            time.sleep(seconds)
            percent = (child.cpu.seconds() - before) / (time.monotonic() - began) * 100
            child.stop()
            rss = child.wait_for("ending", 30.0)["rss_mb"]
        line = {"bench": part, "system": name, "members": members, "core_percent": round(percent, 2), "rss_mb": rss}
        results.append({**line, "load": load_average()})
        on_figures(results[-1])
    return results


def rebalance(servers: str, *, callback_s: float, on_figures: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]]:
    """Have a third member join two, one of which takes ``callback_s`` to give up partitions.

    Raises:
        BenchError: somebody lost partitions, or the rebalance did not end.
    """
    topic = "rebalance"
    create_topic(servers, topic, partitions=12)
    orders = {"task": "rebalance", "servers": servers, "topic": topic, "group": "rebalance"}
    with (
        Instance(_CHILD, {**orders, "callback_s": callback_s}) as slow,
        Instance(_CHILD, {**orders, "callback_s": 0.0}) as other,
    ):
        for child in (slow, other):
            child.wait_for("ready", _START_S)
        # Both have their half before the third comes; the callback of that rebalance is waited for, too.
        _until(slow, lambda report: report["held"] == 6, callback_s + 60, servers, topic)
        _until(other, lambda report: report["held"] == 6, callback_s + 60, servers, topic)
        before = _until(slow, lambda _: True, 30, servers, topic)
        with Instance(_CHILD, {**orders, "callback_s": 0.0}) as third:
            after = _until(
                slow, lambda report: report["callbacks"] > before["callbacks"], callback_s + 120, servers, topic
            )
            kept = _until(other, lambda report: report["held"] == 4, 60, servers, topic)
            third.stop()
        for child in (slow, other):
            child.stop()
    line = {
        "bench": "rebalance",
        "callback_s": round(after["callback_s"] - before["callback_s"], 1),
        "heartbeats_in_callback": after["beats"] - before["beats"],
        "longest_heartbeat_gap_s": round(after["beat_gap"], 2),
        "lost": after["lost"] + kept["lost"],
        "others_longest_pause_s": round(kept["pause_s"], 2),
    }
    on_figures(line)
    if line["lost"]:
        raise BenchError(f"a member was expelled: {line}")
    return [line]


def _until(
    child: Instance, ready: Callable[[dict[str, Any]], bool], timeout: float, servers: str, topic: str
) -> dict[str, Any]:
    """Keep the topic fed until a member reports what is waited for."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        stamped(servers, topic, rate=200, seconds=0.5)
        latest = None
        while (report := child.next_report(0.0)) is not None:
            latest = report if report["event"] == "status" else latest
        if latest is not None and ready(latest):
            return latest
    raise BenchError(f"a member did not get where it should be within {timeout:g} s; last it reported {latest}")


def _medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    names = [name for name in runs[0] if name != "load"]
    return {name: round(statistics.median(run[name] for run in runs), 3) for name in names}
