"""``sparkrelay top``: the live page in a terminal, from the same JSON."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

from cyclopts import Parameter
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sparkrelay.errors import ConfigException, StreamsException
from sparkrelay.observe.http_client import HttpConnection
from sparkrelay.observe.instance_view import read_group
from sparkrelay.observe.peer import fetch_json
from sparkrelay.printable import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

_TIMEOUT_S: Final = 10.0
_LONGEST_ANSWER: Final = 256 << 20
#: Role of a task -> its sign and style.
_FACES: Final = {
    "active": ("●", "green"),
    "restoring": ("◐", "yellow"),
    "created": ("◐", "yellow"),
    "standby": ("○", "blue"),
    "warming": ("△", "magenta"),
}
_MOST_STORIES: Final = 5
_NOT_ASKED: Final = 2
#: Lines of the screen besides the tasks.
_BESIDE_TASKS: Final = 22
_FEWEST_TASKS: Final = 5
_ONCE: Final = "Show it once and exit; the exit code is 1 if there is a problem, and 2 if the instance does not answer."


def top(
    url: Annotated[str, Parameter(help="Any instance's page, such as http://localhost:9404.")],
    /,
    *,
    once: Annotated[bool, Parameter(help=_ONCE)] = False,
    interval: Annotated[float, Parameter(help="Seconds between two updates.")] = 2.0,
) -> int | None:
    """Show a group in the terminal, like its live page: who runs what, lag, throughput, rebalances."""
    if not 0.1 <= interval <= 3_600:
        raise ConfigException(f"--interval={interval} must be 0.1 to 3600 seconds")
    if once:
        try:
            group = _ask(url)
        except (ConfigException, StreamsException) as error:
            # 1 means that the group answered and has a problem.
            print(f"sparkrelay: {printable(str(error))}", file=sys.stderr)
            return _NOT_ASKED
        Console().print(_rendered(group, most_tasks=None))
        return 1 if _trouble(group) else None
    screen = Console()
    with Live(console=screen, screen=screen.is_terminal, auto_refresh=False) as live:
        while True:
            try:
                shown = _rendered(_ask(url), most_tasks=max(_FEWEST_TASKS, screen.height - _BESIDE_TASKS))
            except StreamsException as error:
                shown = Text(printable(str(error)), style="bold red")
            live.update(shown, refresh=True)
            time.sleep(interval)


def _ask(url: str) -> dict[str, Any]:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("no address of a page")
        connection = HttpConnection(parts.hostname, parts.port, _TIMEOUT_S, tls=parts.scheme == "https")
    except ValueError as error:
        raise ConfigException(
            f"{url!r} is not the address of a page: give that of any instance with metrics.port, such as "
            "http://localhost:9404"
        ) from error
    try:
        return read_group(fetch_json(connection, f"{parts.path.rstrip('/')}/api/group", _LONGEST_ANSWER))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error or type(error).__name__
        raise StreamsException(
            f"{url}: {reason}. Ask another instance, or check whether this one has metrics.port"
        ) from error


def _trouble(group: dict[str, Any]) -> list[str]:
    """Return the group's problems, in sentences."""
    said = []
    for one in group["instances"]:
        name = ", ".join(one["processes"]) or "no process yet"
        view = one["view"]
        if one["problem"] is not None:
            said.append(f"{name}: {one['problem']}")
        elif view["trouble"] is not None or not view["alive"]:
            said.append(f"{name} is {view['state']}: {view['trouble'] or 'it does no work'}")
        elif not view["ready"]:
            said.append(f"{name} is {view['state']}: some of its tasks do not run yet")
    if group["missing"]:
        said.append(f"run on no instance that answers: tasks {', '.join(group['missing'][:20])}")
    if group["unknown"]:
        said.append(f"may run on an instance without a page: tasks {', '.join(group['unknown'][:20])}")
    return said


def _rendered(group: dict[str, Any], *, most_tasks: int | None) -> RenderableType:
    trouble = _trouble(group)
    head = Text.assemble((printable(group["application"]), "bold"), f"  as {printable(group['asked'])} sees it  ")
    said = [Text(f"! {printable(line)}", style="red") for line in trouble]
    if not said:
        said = [Text("all is well: every task runs", style="green")]
    views = [one["view"] for one in group["instances"] if one["problem"] is None]
    late = sum(batch["late"] for view in views for batch in view["batches"])
    if late:
        said.append(Text(f"! {late:,.0f} late rows were dropped in the newest micro-batches", style="yellow"))
    return Group(head, *said, _instances(group), _tasks(group, most_tasks), *_stories(group))


def _instances(group: dict[str, Any]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("instance")
    table.add_column("state")
    for name in ("active", "restoring", "standby", "warming", "lag", "records/s", "batch ms"):
        table.add_column(name, justify="right")
    for one in group["instances"]:
        label, view = Text(printable(", ".join(one["processes"]) or "-")), one["view"]
        if view is None:
            page = one["own"] or one["address"]
            table.add_row(label, Text("no answer", style="red") if page else Text("unknown", style="yellow"))
            continue
        counts: dict[str, int] = defaultdict(int)
        for task in view["tasks"]:
            counts["restoring" if task["role"] == "created" else task["role"]] += 1
        stale = one["problem"] is not None
        state = Text(printable(f"was {view['state']}, {one['age']:.0f} s ago" if stale else view["state"]))
        newest = view["batches"][-1]["ms"].get("triggerExecution") if view["batches"] else None
        table.add_row(
            label,
            state,
            *(str(counts[role]) for role in ("active", "restoring", "standby", "warming")),
            _lag(view["tasks"]),
            _rate(view["history"]),
            "-" if newest is None else f"{newest:,.0f}",
        )
    return table


def _lag(tasks: list[dict[str, Any]]) -> str:
    """Return the number of unprocessed input records; unknown while a task does not run yet."""
    own = [task for task in tasks if task["role"] not in {"standby", "warming"}]
    known = [task["lag"] for task in own if task["role"] == "active" and task["lag"] is not None]
    return f"{sum(known):,.0f}" if len(known) == len(own) else "unknown"


def _rate(history: list[list[float]]) -> str:
    """Return records a second between the two newest samples."""
    if len(history) < 2 or min(map(len, history[-2:])) < 3 or history[-1][0] <= history[-2][0]:
        return "-"
    (before, _, had, *_), (now, _, has, *_) = history[-2:]
    return f"{max(0, has - had) / (now - before):,.0f}"


def _tasks(group: dict[str, Any], most: int | None) -> Table:
    """Return the tasks by process; if there is room for some only, those that do not run or lag most."""
    places: dict[str, dict[str, tuple[dict[str, Any], bool]]] = defaultdict(dict)
    for one in group["instances"]:
        for task in one["view"]["tasks"] if one["view"] is not None else ():
            places[task["task"]][task["process"]] = task, one["problem"] is not None
    own = group["instances"][0]["view"]
    names = {*places, *(own["plan"] if own is not None else ())}
    missing, unknown = set(group["missing"]), set(group["unknown"])

    def lag(name: str) -> float:
        return max(
            (t["lag"] or 0 for t, stale in places[name].values() if t["role"] == "active" and not stale), default=0
        )

    shown = sorted(names, key=_order)
    if most is not None and len(shown) > most:
        shown = sorted(sorted(shown, key=lambda n: (n not in missing | unknown, -lag(n), _order(n)))[:most], key=_order)
    columns = [process for one in group["instances"] for process in one["processes"]]
    more = f"; {len(names) - len(shown)} more, which run and lag less" if len(shown) < len(names) else ""
    table = Table(
        box=None, header_style="bold", pad_edge=False, caption_justify="left",
        caption=f"● active ◐ restoring ○ standby △ warming; numbers: offsets still to do{more}",
    )  # fmt: skip
    table.add_column("task")
    table.add_column("lag", justify="right")
    for process in columns:
        table.add_column(Text(printable(process)))
    for name in shown:
        runs = any(task["role"] == "active" and task["lag"] is not None for task, _ in places[name].values())
        where = Text(f"{lag(name):,.0f}") if runs else Text("unknown")
        if name in missing:
            where = Text("✕ nowhere", style="bold red")
        elif name in unknown:
            where = Text("? unknown", style="bold yellow")
        table.add_row(Text(printable(name)), where, *(_cell(places[name].get(process)) for process in columns))
    return table


def _cell(place: tuple[dict[str, Any], bool] | None) -> Text:
    if place is None:
        return Text("")
    task, stale = place
    role = task["role"]
    sign, style = _FACES.get(role, ("?", ""))
    rest = "" if role == "active" or task["lag"] is None else f" {task['lag']:,.0f}"
    text = f"{sign} {role}{rest}{' as last seen' if stale else ''}"
    return Text(printable(text), style="dim" if stale else style)


def _order(name: str) -> tuple[int, int, str]:
    subtopology, _, partition = name.partition("_")
    numbers = [int(part) if part.isdecimal() and len(part) < 10 else 0 for part in (subtopology, partition)]
    return numbers[0], numbers[1], name


def _stories(group: dict[str, Any]) -> list[Text]:
    """Return the newest rebalances, newest first: reason and duration."""
    whys: dict[float, str] = {}
    seconds: dict[float, float] = {}
    for one in group["instances"]:
        for entry in one["view"]["rebalances"] if one["view"] is not None else ():
            if entry["generation"] is not None:
                generation = entry["generation"]
                whys[generation] = entry["why"] or whys.get(generation, "")
                seconds[generation] = max(seconds.get(generation, 0.0), entry["seconds"] or 0.0)
    lines = []
    for generation in sorted(whys, reverse=True)[:_MOST_STORIES]:
        took = f", in service after {seconds[generation]:.1f} s" if seconds[generation] else ""
        lines.append(Text(printable(f"generation {generation:.0f}: because {whys[generation] or 'not known'}{took}")))
    return lines
