"""``sparkrelay simulate``: thousands of simulated groups, each with every assignor, on Spark."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress as Bar, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from sparkrelay.cli.options import AssignorSettings, assignor_settings, import_from_current_folder
from sparkrelay.errors import ConfigException
from sparkrelay.simulate.contestants import Contestant, contestants
from sparkrelay.simulate.picture import check_picture, write_picture
from sparkrelay.simulate.scenario import Churn, mixed_scenarios

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sparkrelay.simulate.study import Progress

_PLAIN_WIDTH = 160
_SHOW_EVERY_S = 5.0
#: Column of the summary, its heading, and its divisor.
_COLUMNS = (
    ("rebalances_median", "rebal.\nmedian", 1),
    ("rebalances_p95", "rebal.\np95", 1),
    ("converge_s_median", "conv. s\nmedian", 1),
    ("tasks_moved_mean", "tasks\nmoved", 1),
    ("restored_bytes_mean", "GB re-\nstored", 1e9),
    ("down_task_s_mean", "down\ntask-s", 1),
    ("down_task_s_p95", "down\np95", 1),
    ("exposed_task_s_mean", "exposed\ntask-s", 1),
    ("imbalance_worst_p95", "worst\nimbal.", 1),
    ("imbalance_end_p95", "end\nimbal.", 1),
    ("cross_rack_bytes_per_s_mean", "x-rack\nMB/s", 1e6),
)


def simulate(
    *,
    scenarios: Annotated[int, Parameter(help="Number of simulated groups.")] = 1000,
    seed: Annotated[int, Parameter(help="The same seed creates the same groups.")] = 0,
    assignor: Annotated[
        list[str] | None,
        Parameter(help="package.module:Class or ./file.py:Class; repeatable (default: all of ours)."),
    ] = None,
    assignor_setting: AssignorSettings = None,
    and_ours: Annotated[bool, Parameter(help="With --assignor: compare with ours too.")] = False,
    churn: Annotated[list[Churn] | None, Parameter(help="Only this kind of churn; repeatable (default: all).")] = None,
    cores: Annotated[int | None, Parameter(help="Cores for Spark (default: all of this machine).")] = None,
    json_file: Annotated[Path | None, Parameter(name="--json", help="Write the summary to this file.")] = None,
    csv: Annotated[Path | None, Parameter(help="Write every result as CSV into this new folder.")] = None,
    parquet: Annotated[Path | None, Parameter(help="Write every result as Parquet into this new folder.")] = None,
    picture: Annotated[
        Path | None, Parameter(help="Draw the comparison: .svg, .html, or .png if matplotlib is installed.")
    ] = None,
) -> None:
    """Study task assignors: simulate groups through scale-out, scale-in, bounces, rack loss and flapping, on Spark.

    Prints one line for each kind of churn and assignor. See docs/simulate.md for what the columns mean.
    """
    _check_outputs(scenarios, cores, json_file, (csv, parquet), picture)
    import_from_current_folder()
    settings = assignor_settings(assignor_setting)
    chosen = _chosen(assignor, and_ours, settings)
    # Nothing heavy is imported until the options are known to be valid.
    from sparkrelay import spark_session  # noqa: PLC0415
    from sparkrelay.simulate.study import run_study, summarize, watched  # noqa: PLC0415

    errors = Console(stderr=True)
    names = ", ".join(contestant.name for contestant in chosen)
    errors.print(
        f"{scenarios:,} scenarios x {len(chosen)} assignors ({names}); starting Spark ...",
        highlight=False,
        soft_wrap=True,
    )
    spark = spark_session(
        "sparkrelay simulate",
        **{
            "spark.master": f"local[{cores or os.cpu_count() or 1}]",
            "spark.ui.enabled": "false",
            # No records are decoded here, so workers need not compile the codecs.
            "spark.python.daemon.module": "pyspark.daemon",
            "spark.sql.shuffle.partitions": "8",
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    # PySpark would cancel its jobs within the signal handler, which fails with a long traceback during another call to
    # Spark; and py4j logs the interrupted call. The session is stopped below, with its jobs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        began = time.monotonic()
        groups = mixed_scenarios(scenarios, seed=seed, kinds=[kind.value for kind in churn] if churn else None)
        results = run_study(spark, groups, [contestant.kind for contestant in chosen], settings=settings).persist()
        with _progress(errors) as show, watched(spark, show):
            results.count()
        took_s = time.monotonic() - began
        summary = _in_order([row.asDict() for row in summarize(results).collect()], chosen)
        if csv is not None:
            results.coalesce(1).write.csv(str(csv), header=True)
        if parquet is not None:
            results.coalesce(1).write.parquet(str(parquet))
        failures = results.where("error is not null").select("assignor", "scenario", "error").limit(5).collect()
    finally:
        spark.stop()

    _print_table(summary)
    for failure in failures:
        errors.print(f"failed: {failure.assignor} in scenario {failure.scenario}: {failure.error}", style="red")
    errors.print(f"simulated {scenarios * len(chosen):,} times in {took_s:.0f} s", highlight=False)
    if json_file is not None:
        document = {
            "scenarios": scenarios,
            "seed": seed,
            "assignors": [contestant.name for contestant in chosen],
            "seconds": round(took_s, 1),
            "summary": summary,
        }
        json_file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if picture is not None:
        write_picture(picture, summary, title=f"Task assignors in {scenarios:,} simulated groups (seed {seed})")


def _chosen(assignor: Sequence[str] | None, and_ours: bool, settings: Mapping[str, str]) -> Sequence[Contestant]:
    if not assignor:
        return contestants(settings=settings)
    asked = contestants(assignor, settings)
    if not and_ours:
        return asked
    ours = [contestant.kind for contestant in contestants()]
    return contestants([*(contestant.kind for contestant in asked if contestant.kind not in ours), *ours], settings)


def _in_order(summary: list[dict[str, Any]], chosen: Sequence[Contestant]) -> list[dict[str, Any]]:
    """Sort by the order of kinds (all kinds last) and assignors."""
    kinds = [*Churn, "all"]
    names = [contestant.name for contestant in chosen]
    return sorted(summary, key=lambda row: (kinds.index(row["churn"]), names.index(row["assignor"])))


def _check_outputs(
    scenarios: int,
    cores: int | None,
    json_file: Path | None,
    folders: tuple[Path | None, ...],
    picture: Path | None,
) -> None:
    if scenarios < 1:
        raise ConfigException(f"--scenarios {scenarios}: a study needs at least 1")
    if cores is not None and cores < 1:
        raise ConfigException(f"--cores {cores}: Spark needs at least 1")
    if picture is not None:
        check_picture(picture)
    for option, file in (("--json", json_file), ("--picture", picture)):
        if file is not None:
            if not file.parent.is_dir():
                raise ConfigException(f"{option} {file}: the folder {file.parent} does not exist; make it first")
            _try(option, file, _open_file)
    for option, folder in zip(("--csv", "--parquet"), folders, strict=True):
        if folder is not None:
            _try(option, folder, _make_folder)
    named = [folder.absolute() for folder in folders if folder is not None]
    if len(set(named)) < len(named):
        raise ConfigException(f"--csv and --parquet both name {named[0]}; give each a folder of its own")


def _try(option: str, path: Path, write: Callable[[Path], None]) -> None:
    """Check before the work that its results can be written; leave nothing behind."""
    try:
        write(path)
    except FileExistsError as error:
        raise ConfigException(f"{option} {path} exists already; name a new folder for the results") from error
    except OSError as error:
        raise ConfigException(f"{option} {path} cannot be written: {error.strerror}; choose another path") from error


def _open_file(path: Path) -> None:
    new = not path.exists()
    path.open("a").close()
    if new:
        path.unlink()


def _make_folder(path: Path) -> None:
    path.mkdir(parents=True)
    path.rmdir()


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[Progress], None]]:
    """Show progress as a bar on a terminal, otherwise as a line every few seconds."""
    if console.is_terminal:
        columns = (TextColumn("simulating"), BarColumn(), TextColumn("{task.percentage:.0f} %"))
        with Bar(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bar:
            row = bar.add_task("simulating", total=None)
            yield lambda progress: bar.update(row, completed=progress.done, total=progress.total or None)
        return
    began = shown = time.monotonic()

    def show(progress: Progress) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown < _SHOW_EVERY_S or not progress.total:
            return
        shown = now
        share = progress.done / progress.total
        left = f", about {(now - began) / share * (1 - share):.0f} s left" if share else ""
        print(f"simulated {share:.0%} ({progress.done} of {progress.total} Spark tasks){left}", file=sys.stderr)

    yield show


def _print_table(summary: Sequence[Mapping[str, Any]]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PLAIN_WIDTH)
    title = "means, except medians, p95 and imbalance (p95); see docs/simulate.md"
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, padding=0)
    for heading in ("churn", "assignor"):
        table.add_column(heading, no_wrap=True)
    for heading in ("runs", "failed", "not\nconv.", *(heading for _, heading, _ in _COLUMNS)):
        table.add_column(heading, justify="right", no_wrap=True)
    before = None
    for row in summary:
        if before not in {None, row["churn"]}:
            table.add_section()
        cells = ["-" if row[name] is None else _figure(row[name] / scale) for name, _, scale in _COLUMNS]
        first = row["churn"] if row["churn"] != before else ""
        before = row["churn"]
        table.add_row(first, row["assignor"], *(str(row[name]) for name in ("runs", "failed", "unconverged")), *cells)
    console.print(table)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
