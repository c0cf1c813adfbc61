"""The figures of ``bench.consumer`` as tables for people."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["consumer_tables"]

_WIDTH = 118


def consumer_tables(machine: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> str:
    """Return all results, and what they were measured on, as text."""
    out = Console(file=io.StringIO(), width=_WIDTH, color_system=None)
    for name, make in (
        ("drain", _drain),
        ("latency", _latency),
        ("idle", _crowd),
        ("crowd", _crowd),
        ("rebalance", _rebalance),
    ):
        if lines := [line for line in results if line["bench"] == name]:
            out.print(make(lines))
    peers = ", ".join(f"{n} {machine[n]}" for n in ("confluent-kafka", "aiokafka", "kafka-python") if n in machine)
    out.print(
        "{cores} cores ({cpu}), {memory_gb} GB, load average {load_average} at the start; SparkRelay {sparkrelay}, "
        "Kafka {kafka}, Python {python}, Java {java}, pyarrow {pyarrow}".format(**machine),
        f"; {peers}" if peers else "",
        sep="",
        soft_wrap=True,
        highlight=False,
    )
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    return table


def _drain(lines: Sequence[Mapping[str, Any]]) -> Table:
    table = _table(
        f"Records of 100 bytes, thousands a second, median of {lines[0]['runs']}",
        "consumer", "codec", "k/s", "after the first batch", "k/core-s", "x confluent", "x Java",
    )  # fmt: skip
    for line in lines:
        table.add_row(
            line["system"],
            line["codec"],
            f"{line['rps'] / 1000:.0f}",
            _number(line.get("steady_rps"), 1000, 0),
            _number(line.get("records_per_cpu_s"), 1000, 0),
            _number(line.get("to_confluent-kafka"), 1, 2),
            _number(line.get("to_Java"), 1, 2),
        )
    return table


def _number(value: float | None, divisor: float, digits: int) -> str:
    return "" if value is None else f"{value / divisor:.{digits}f}"


def _latency(lines: Sequence[Mapping[str, Any]]) -> Table:
    title = f"From producing to polling at 1,000 records/s, ms, median of {lines[0]['runs']}"
    table = _table(title, "consumer", "p50", "p99", "max")
    for line in lines:
        table.add_row(line["system"], *(f"{line[name]:.2f}" for name in ("p50_ms", "p99_ms", "max_ms")))
    return table


def _crowd(lines: Sequence[Mapping[str, Any]]) -> Table:
    members = lines[0]["members"]
    title = "One idle member of a group" if members == 1 else f"{members} idle members of a group in one process"
    table = _table(title, "consumer", "% of a core", "RSS, MB")
    for line in lines:
        if "failed" in line:
            table.add_row(line["system"], "failed", "")
        else:
            table.add_row(line["system"], f"{line['core_percent']:.2f}", f"{line['rss_mb']:.0f}")
    return table


def _rebalance(lines: Sequence[Mapping[str, Any]]) -> Table:
    table = _table(
        "A rebalance with a slow callback",
        "callback, s", "heartbeats in it", "longest pause between two, s", "partitions lost",
        "longest pause of another member's records, s",
    )  # fmt: skip
    for line in lines:
        table.add_row(
            f"{line['callback_s']:.1f}",
            f"{line['heartbeats_in_callback']:.0f}",
            f"{line['longest_heartbeat_gap_s']:.2f}",
            str(line["lost"]),
            f"{line['others_longest_pause_s']:.2f}",
        )
    return table
