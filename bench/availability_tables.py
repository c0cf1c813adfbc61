"""The figures of ``bench.availability`` as a table for people."""

from __future__ import annotations

import io
import statistics
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["availability_table"]

_WIDTH = 118
_GAPS = ("gap_s", "other_gap_s", "gap_before_s")
#: What only some scenarios report: key, words, format.
_MORE = (
    ("stop_s", "stopped in {:.1f} s"),
    ("gap_to_the_end_s", "until the replacement works: {:.2f} s"),
    ("hand_over_s", "warm copy to hand-over {:.1f} s"),
    ("shared_after_s", "shared {:.0f} s after its start"),
    ("restored", "{:,} records restored"),
    ("restored_per_s", "{:,}/s"),
    ("without_rps", "{:,}/s without copies"),
    ("with_rps", "{:,}/s with one"),
    ("standby_ratio", "ratio {:.2f}"),
    ("standby_cpu_ratio", "by processor time {:.2f}"),
    ("repeated_rows", "{} rows repeated"),
    ("failed", "FAILED: {}"),
)


def availability_table(machine: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> str:
    """Return all results, and what they were measured on, as text; several runs of one thing as their medians."""
    out = Console(file=io.StringIO(), width=_WIDTH, color_system=None)
    keys = lines[0]["keys"] if lines else 0
    table = Table(title=f"Availability, {keys:,} keys, session timeout 10 s; silences in s", title_justify="left")
    for column in ("scenario", "system"):
        table.add_column(column)
    for column in ("its tasks", "others", "before", "p99, ms"):
        table.add_column(column, justify="right")
    table.add_column("more")
    for (scenario, system), runs in _grouped(lines).items():
        figures = _median(runs)
        table.add_row(
            scenario,
            system,
            *(f"{figures[gap]:.2f}" if gap in figures else "" for gap in _GAPS),
            f"{figures['p99_ms']:.0f}" if "p99_ms" in figures else "",
            "; ".join(words.format(figures[key]) for key, words in _MORE if figures.get(key)),
        )
    out.print(table)
    out.print(
        "{cores} cores ({cpu}), {memory_gb} GB, load average {load_average} at the start; SparkRelay {sparkrelay}, "
        "Spark {spark}, Kafka {kafka}, Python {python}, Java {java}".format(**machine),
        soft_wrap=True,
        highlight=False,
    )
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def _grouped(lines: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    grouped: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for line in lines:
        grouped.setdefault((line["scenario"], line["system"]), []).append(line)
    return grouped


def _median(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the medians of the numbers; of the rest what the last run with it said."""
    merged: dict[str, Any] = {}
    for run in runs:
        merged |= run
    for key in merged:
        values = [run[key] for run in runs if isinstance(run.get(key), int | float)]
        if values:
            median = statistics.median(values)
            merged[key] = round(median) if all(isinstance(value, int) for value in values) else median
    return merged
