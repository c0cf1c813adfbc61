"""``sparkrelay demo``: two instances share a real Kafka stream, one is killed, and the result is exact."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from sparkrelay.cli.options import import_from_current_folder
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from rich.console import RenderableType

    from sparkrelay.demo.story import Result

_MOST_EXECUTORS = 8


def demo(
    *,
    quick: Annotated[bool, Parameter(help="Half the time.")] = False,
    json_file: Annotated[Path | None, Parameter(name="--json", help="Write the measurements to this file.")] = None,
    executors: Annotated[
        int, Parameter(help="Spark executors per instance; 0: the driver's own JVM. From 2 on one is killed, too.")
    ] = 0,
    assignor: Annotated[str | None, Parameter(help="The task assignor: package.module:Class or file.py:Class.")] = None,
) -> int:
    """See what SparkRelay does, in about a minute and a half.

    A PySpark pipeline counts a year of real flights from a real Kafka. A second instance joins, warms up and takes its
    share. The first is killed with SIGKILL. The second finishes alone, and a plain Spark batch checks the result.

    Exit codes: 0 the result is exact, 1 it is not or the demo failed.
    """
    if not 0 <= executors <= _MOST_EXECUTORS:
        raise ConfigException(
            f"--executors {executors}: give 0 (each instance runs in its driver's own JVM) to {_MOST_EXECUTORS}: "
            "both instances run on this machine. From 2 on, one executor is killed as well."
        )
    if assignor is not None:  # fail before anything is started
        from sparkrelay.assignment import load_assignor  # noqa: PLC0415

        import_from_current_folder()
        load_assignor(assignor, {})
    if json_file is not None:
        try:
            json_file.touch()
        except OSError as error:
            raise ConfigException(f"--json {json_file}: {error.strerror}. Name a file that can be written.") from error
    # Late, because importing them takes a second, which `--help` does not need.
    from sparkrelay.demo.screen import Screen  # noqa: PLC0415
    from sparkrelay.demo.story import QUICK, Pacing, Story  # noqa: PLC0415

    console = Console()
    pacing = QUICK if quick else Pacing()
    screen = Screen(console)
    with _terminable(), Story(screen, pacing=pacing, executors=executors, assignor=assignor) as story:
        with screen:
            result = story.run()
        if json_file is not None:
            json_file.write_text(json.dumps(dataclasses.asdict(result), indent=2) + "\n")
        console.print(_summary(result))
        if not result.exact:
            story.keep_logs = True
            console.print(f"The logs are in {story.logs}", soft_wrap=True)
            return 1
    return 0


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Have SIGTERM and a closed terminal end us by an exception, as Ctrl-C does, so that every child is ended.

    Ctrl-C is requested too: a script that starts us in the background has it ignored, and then our children, which we
    end, would keep running.
    """

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _summary(result: Result) -> RenderableType:
    share = "owned active tasks" if result.tasks_moved else "at rest, without active tasks,"
    figures = Table(box=None, show_header=False, padding=(0, 1))
    bound = result.session_timeout_ms / 1000
    for words, figure in (
        ("flights", f"{result.records:,}, at {result.records_per_second:,.0f} a second"),
        ("lost", f"{result.lost:,}"),
        ("counted twice", f"{result.overcounted:,}"),
        ("B joined", f"{share} {result.joined_s:.1f} s after its Spark session was up"),
        (
            "A killed",
            f"B's first row for a task of A came after {result.takeover_s:.1f} s (session timeout {bound:g} s)",
        ),
        *(
            [("executor killed", f"one of its tasks continued after {result.executor_takeover_s:.1f} s")]
            if result.executor_takeover_s is not None
            else []
        ),
        ("versions", f"Kafka {result.kafka_version}, Spark {result.spark_version}"),
        ("whole demo", f"{result.seconds:.0f} s"),
    ):
        figures.add_row(words, figure)
    if result.exact:
        title = "[bold green]EXACT: one instance was killed, and every flight was counted once"
    else:
        title = "[bold red]NOT EXACT: the result differs from a plain batch over the same file"
        for line in result.differences:
            figures.add_row("differs", line)
    return Panel(figures, title=title, border_style="green" if result.exact else "red")
