"""The figures as tables for people."""

from __future__ import annotations

import io
import statistics
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["tables"]

_WIDTH = 118


def tables(machine: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> str:
    """Return all results, and what they were measured on, as text."""
    out = Console(file=io.StringIO(), width=_WIDTH, color_system=None)
    for name, make in _PARTS.items():
        if lines := [line for line in results if line["bench"] == name]:
            for table in make(lines):
                out.print(table)
    out.print(
        "{cores} cores ({cpu}), {memory_gb} GB, load average {load_average} at the start; SparkRelay {sparkrelay}, "
        "Spark {spark}, its Kafka connector {spark_kafka_connector}, Kafka {kafka}, Python {python}, Java {java}, "
        "pyarrow {pyarrow}".format(**machine),
        soft_wrap=True,
        highlight=False,
    )
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def _table(title: str, first: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _drain(lines: Sequence[Mapping[str, Any]]) -> list[Table]:
    runs = lines[0]["runs"]
    table = _table(
        f"{lines[0]['bench'].title()}, thousands of records/s, median of {runs}; "
        "x: Structured Streaming, a pass a batch = 1; "
        "x EOS, x ALOS: warm, Kafka Streams exactly, at least once = 1",
        "system", "cold", "x", "warm", "x", "x EOS", "x ALOS", "warm / cold", "k/core-s", "start, s",
    )  # fmt: skip
    for line in lines:
        table.add_row(
            line["variant"],
            f"{line['cold_rps'] / 1000:.0f}",
            _ratio(line["cold_ratio"]),
            f"{line['warm_rps'] / 1000:.0f}",
            _ratio(line["warm_ratio"]),
            _ratio(line["to_exactly_once"]),
            _ratio(line["to_at_least_once"]),
            _ratio(line["warm_to_cold_ratio"]),
            f"{line['warm_records_per_cpu_s'] / 1000:.0f}",
            f"{line['to_first_batch_s']:.1f}",
        )
    return [table]


def _latency(lines: Sequence[Mapping[str, Any]]) -> list[Table]:
    made = []
    for shape in dict.fromkeys((line["rate"], line["partitions"], line["instances"]) for line in lines):
        rate, partitions, instances = shape
        title = f"Latency at {rate:,} records/s, {partitions} partitions, {instances} instances, ms, median of "
        title += str(lines[0]["runs"])
        table = _table(title, "system", "p50", "p99", "max", "batch p50", "busy cores", "p50 above", "p99 above")
        for line in lines:
            if (line["rate"], line["partitions"], line["instances"]) == shape:
                figures = (line.get(name) for name in ("p50_ms", "p99_ms", "max_ms", "batch_p50_ms"))
                shown = ["" if figure is None else f"{figure:.0f}" for figure in figures]
                above = [f"{line[name]:+.1f}" if name in line else "" for name in ("p50_above_ms", "p99_above_ms")]
                variant = line["variant"] if line["query"] == "totals" else f"{line['variant']}: {line['query']}"
                table.add_row(variant, *shown, f"{line['busy_cores']:.2f}", *above)
        made.append(table)
    return made


def _start(lines: Sequence[Mapping[str, Any]]) -> list[Table]:
    runs = lines[0]["runs"]
    whole = _table(f"Start, from the process to its first row, median of {runs}", "system", "seconds", "core-seconds")
    made = [whole]
    for line in lines:
        whole.add_row(line["variant"], f"{line['to_output_s']:.1f}", f"{line['cpu_s']:.1f}")
        # The others say only that they are up, and that they take input.
        if "imported" in line["phases"]:
            parts = _table(f"{line['variant']}: done after, s", "phase", "seconds")
            for name, seconds in line["phases"].items():
                parts.add_row(name, f"{seconds:.1f}")
            made.append(parts)
    return made


def _steady(lines: Sequence[Mapping[str, Any]]) -> list[Table]:
    line = lines[0]
    first, last = line["minutes"]
    memory = _table(
        f"Memory at 1,000 records/s, MB: {line['variant']}",
        "process",
        f"minute {first:g}",
        f"minute {last:g}",
        "growth",
    )
    for kind, growth in line["growth_mb"].items():
        role, _, unit = kind.partition("_")
        memory.add_row(
            f"{role}, {unit.upper()}", *(f"{sizes[kind]:.0f}" for sizes in line["memory_mb"]), f"{growth:+.1f}"
        )
    for size in ("used", "committed"):
        if all(line["heap_mb"]):
            before, after = (heap[size] for heap in line["heap_mb"])
            memory.add_row(f"jvm, heap {size}", f"{before:.0f}", f"{after:.0f}", f"{after - before:+.1f}")
    idle = _table(f"Idle: {line['variant']}", "when", "% of a core", "Spark jobs", "seconds")
    for measured in line["idle"]:
        idle.add_row(
            measured["when"],
            f"{measured['idle_core_percent']:.1f}",
            str(measured["idle_jobs"]),
            f"{measured['idle_seconds']:.0f}",
        )
    return [memory, idle]


def _state(lines: Sequence[Mapping[str, Any]]) -> list[Table]:
    table = _table(
        f"State of about 100 bytes a key, thousands a second, median of {lines[0]['runs']}; restore on one core; "
        "x EOS: Kafka Streams = 1; x few: its own with the fewest keys = 1",
        "system", "keys", "drain", "x EOS", "x few", "k/core-s", "restore", "disk, MB", "PSS, MB: driver/JVM/workers",
    )  # fmt: skip
    for line in lines:
        table.add_row(
            line["variant"],
            f"{line['keys']:,}",
            f"{line['warm_rps'] / 1000:.0f}",
            _ratio(line["to_exactly_once"]),
            f"{line['to_few_keys']:.2f}",
            f"{line['warm_records_per_cpu_s'] / 1000:.0f}",
            f"{line['restored_per_s'] / 1000:.0f}",
            f"{line['disk_mb']:,}",
            " / ".join(f"{sizes[1]:,}" for sizes in line["memory_mb"].values()),
        )
    return [table]


def _expiry(lines: Sequence[Mapping[str, Any]]) -> list[Table]:
    table = _table(
        f"Expiry, thousands of records/s, median of {lines[0]['runs']}; cost: what the rate lacks if windows end",
        "system", "warm", "cost", "k/core-s", "cost",
    )  # fmt: skip
    for line in lines:
        cells = []
        for rate, cost in (("warm_rps", "cost_percent"), ("warm_records_per_cpu_s", "cpu_cost_percent")):
            cells += [f"{line[rate] / 1000:.0f}", f"{line[cost]:.1f} %" if cost in line else ""]
        table.add_row(line["variant"], *cells)
    return [table]


def _letters(lines: Sequence[Mapping[str, Any]]) -> list[Table]:
    return _shared("Dead letters", "without bad records", lines)


def _formats(lines: Sequence[Mapping[str, Any]]) -> list[Table]:
    return _shared("Formats", "JSON", lines)


def _shared(title: str, base: str, lines: Sequence[Mapping[str, Any]]) -> list[Table]:
    table = _table(
        f"{title}, thousands of records/s, median of {lines[0]['runs']}; x: {base} = 1",
        "topic", "warm", "x", "k/core-s", "x",
    )  # fmt: skip
    for line in lines:
        table.add_row(line["variant"], *_shares(line))
    return [table]


def _queries(lines: Sequence[Mapping[str, Any]]) -> list[Table]:
    runs = lines[0]["runs"]
    asked = _table(
        f"Queries of one row over HTTP, beside 1,000 records/s, ms, median of {runs}",
        "the instance that is asked is", "asked/s", "answered/s", "p50", "p99", "max", "busy cores",
    )  # fmt: skip
    drained = _table(
        f"Drain while one is asked, thousands of records/s, median of {runs}; x: not asked = 1",
        "instance", "warm", "x", "k/core-s", "x",
    )  # fmt: skip
    read = _table(f"A table as a DataFrame, the session is up, median of {runs}", "rows", "seconds")
    for line in lines:
        if "asked" in line:
            cells = [f"{line[name]:,.0f}" for name in ("rate", "answered_rps")]
            cells += [f"{line[name]:.1f}" for name in ("p50_ms", "p99_ms", "max_ms")]
            asked.add_row(line["asked"], *cells, f"{line['busy_cores']:.2f}")
        elif "read_s" in line:
            read.add_row(f"{line['rows']:,}", f"{line['read_s']:.1f}")
        else:
            drained.add_row(line["variant"], *_shares(line))
    return [asked, drained, read]


def _shares(line: Mapping[str, Any]) -> list[str]:
    """Return two rates, and what share they are of what they are compared with."""
    cells = []
    for rate in ("warm_rps", "warm_records_per_cpu_s"):
        cells += [f"{line[rate] / 1000:.0f}", f"{line[name]:.2f}" if (name := f"{rate}_ratio") in line else ""]
    return cells


def _flat(lines: Sequence[Mapping[str, Any]]) -> list[Table]:
    (line,) = lines
    title = f"Flat: {line['keys']:,} users, {line['windows']} window lengths"
    table = _table(title, "of the state", "least", "most", "apart")
    for name, words in (("rows", "rows"), ("bytes", "bytes"), ("changelog", "changelog records")):
        sizes = (f"{line[f'{name}_{way}']:,}" for way in ("min", "max"))
        table.add_row(words, *sizes, f"{line[f'{name}_spread_percent']:.1f} %")
    return [table]


def _wide(lines: Sequence[Mapping[str, Any]]) -> list[Table]:
    title = f"Wide records: most PSS of all processes, MB, while {lines[0]['backlog_mb']:,} MB are drained"
    table = _table(
        title, "records of 20 kB", "query", "PSS", "driver", "JVM", "workers", "batches", "largest", "seconds"
    )
    for line in lines:
        sizes = [f"{line['pss_mb']:,}", *(f"{size:,}" for size in line["roles_mb"].values())]
        cells = [str(line["batches"]), f"{line['largest_batch']:,}", f"{line['seconds']:.0f}"]
        table.add_row(line["records"], line["query"], *sizes, *cells)
    return [table]


def _driver(lines: Sequence[Mapping[str, Any]]) -> list[Table]:
    title = f"Test driver, seconds of a step of one record, {lines[0]['steps']} steps, median of {lines[0]['runs']}"
    table = _table(title, "query", "first", "p50", "p99", "max")
    for line in lines:
        table.add_row(line["query"], *(f"{line[name]:.3f}" for name in ("first_s", "p50_s", "p99_s", "max_s")))
    return [table]


def _changes(lines: Sequence[Mapping[str, Any]]) -> list[Table]:
    title = f"Changes a second, median of {lines[0]['runs']}; x few: its own with the fewest keys = 1"
    table = _table(title, "statement", "keys", "changes/s", "x few", "changes/core-s", "bytes a key")
    for line in lines:
        figures = (f"{line['changes_per_cpu_s']:,}", f"{line['bytes_a_key']:,}")
        rate = (f"{line['changes_per_s']:,}", f"{line['to_few_keys']:.2f}")
        table.add_row(line["statement"], f"{line['keys']:,}", *rate, *figures)
    return [table]


def _nexmark(lines: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Make a row for each query, and one for the geometric means of ratios."""
    names = list(dict.fromkeys(line["variant"] for line in lines))
    table = _table(
        f"Nexmark, thousands of events/s, warm, median of {lines[0]['runs']}; x: SparkRelay, the peer = 1; "
        "MB: most RSS of all processes at once",
        "query", *(column for name in names for column in _nexmark_columns(name)), "exact",
    )  # fmt: skip
    for query in dict.fromkeys(line["query"] for line in lines):
        of_query = {line["variant"]: line for line in lines if line["query"] == query}
        cells = [cell for name in names for cell in _nexmark_cells(name, of_query.get(name), of_query.get(_OURS))]
        table.add_row(query, *cells, _all_exact(of_query))
    means = [
        cell
        for name in names
        for cell in (("", _geometric_mean(lines, name), "") if name in _NEXMARK_RATIOS else ("", ""))
    ]
    table.add_section()
    table.add_row("geometric mean", *means, "")
    return [table]


_OURS = "SparkRelay"
_NEXMARK_RATIOS = {"Structured Streaming": "to_structured", "Kafka Streams": "to_streams"}


def _nexmark_columns(name: str) -> tuple[str, ...]:
    title = name.replace(" ", "\n")
    return (title, "x", "MB") if name in _NEXMARK_RATIOS else (title, "MB")


def _nexmark_cells(name: str, line: Mapping[str, Any] | None, ours: Mapping[str, Any] | None) -> tuple[str, ...]:
    if line is None:
        return ("",) * len(_nexmark_columns(name))
    rate = f"{line['warm_rps'] / 1000:.1f}" if "warm_rps" in line else "failed"
    memory = f"{line['rss_mb']:,.0f}" if "rss_mb" in line else ""
    if name not in _NEXMARK_RATIOS:
        return rate, memory
    return rate, _ratio(ours.get(_NEXMARK_RATIOS[name]) if ours else None), memory


def _all_exact(lines: Mapping[str, Mapping[str, Any]]) -> str:
    wrong = [name for name, line in lines.items() if not line["exact"]]
    return f"no: {', '.join(wrong)}" if wrong else "yes"


def _geometric_mean(lines: Sequence[Mapping[str, Any]], peer: str) -> str:
    ratios = [ratio for line in lines if line["variant"] == _OURS if (ratio := line.get(_NEXMARK_RATIOS[peer]))]
    return _ratio(statistics.geometric_mean(ratios) if ratios else None)


_PARTS: dict[str, Callable[[Sequence[Mapping[str, Any]]], list[Table]]] = {
    "drain": _drain,
    "lookup": _drain,
    "join": _drain,
    "windows": _drain,
    "expiry": _expiry,
    "letters": _letters,
    "formats": _formats,
    "queries": _queries,
    "flat": _flat,
    "wide": _wide,
    "latency": _latency,
    "tasks": _latency,
    "start": _start,
    "steady": _steady,
    "state": _state,
    "driver": _driver,
    "changes": _changes,
    "nexmark": _nexmark,
}
