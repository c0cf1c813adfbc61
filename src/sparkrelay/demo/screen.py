"""The demo's screen: a live picture on a terminal, elsewhere one line per event."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sparkrelay.demo.board import Board, Client, Share
from sparkrelay.types import TaskId

if TYPE_CHECKING:
    from rich.console import RenderableType

_REFRESH_S: Final = 0.2
_MAX_NOTES: Final = 12
_FACES: Final = {
    Share.ACTIVE: ("●", "bold green", "active"),
    Share.STANDBY: ("○", "cyan", "standby (warm copy)"),
    Share.WARMING: ("◐", "yellow", "warming (copy catching up)"),
    Share.RESTORING: ("◔", "bold yellow", "restoring"),
}


class Screen:
    """Shows the board. On exit the last picture stays; exit before anything else prints."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._board: Board | None = None
        self._live = Live(console=console, auto_refresh=False, get_renderable=self._picture)
        self._drawn_at = 0.0
        self._printed = 0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()  # after drawing once more

    def show(self, board: Board) -> None:
        """Draw the board, at most five times a second; without a terminal, print its new notes."""
        self._board = board
        if not self._live.is_started:
            for at, text in board.notes[self._printed :]:
                self._console.print(f"[{_clock(at)}] {text}", markup=False, highlight=False, soft_wrap=True)
            self._printed = len(board.notes)
        elif (now := time.monotonic()) - self._drawn_at >= _REFRESH_S:
            self._drawn_at = now
            self._live.refresh()

    def _picture(self) -> RenderableType:
        return _picture(self._board) if self._board else ""


def _picture(board: Board) -> RenderableType:
    legend = Text("  ", style="dim")
    for symbol, style, words in _FACES.values():
        legend.append(symbol, style=style).append(f" {words}  ")
    notes = [f"{_clock(at)}  {text}" for at, text in board.notes[-_MAX_NOTES:]]
    lines = [Text(note, no_wrap=True, overflow="ellipsis") for note in notes + [""] * (_MAX_NOTES - len(notes))]
    return Panel(
        Group(_clients(board), legend, Text(), _bars(board), Text(), *lines),
        title=f"[bold]SparkRelay demo[/bold] · {board.title}",
        subtitle=_clock(board.elapsed),
        border_style="blue",
    )


def _clients(board: Board) -> Table:
    clients = board.clients.values()
    tasks = sorted({*board.owners, *(task for client in clients for task in client.tasks)}, key=TaskId.parse)
    table = Table("instance", box=None, padding=(0, 1), expand=True)
    for task in tasks:
        table.add_column(task, justify="center", no_wrap=True)
    for heading in ("flights/s", "behind"):
        table.add_column(heading, justify="right", no_wrap=True)
    for client in clients:
        if client.gone:
            table.add_row(Text(f"{client.name}  {client.phase}", "bold red"), *(Text("✗", "red") for _ in tasks))
            continue
        who = Text(client.name, "bold").append(f"  {client.phase}", "green" if client.phase == "running" else "yellow")
        table.add_row(who, *(_face(client, task) for task in tasks), f"{client.rate:,.0f}", f"{client.behind:,}")
    return table


def _face(client: Client, task: str) -> Text:
    share, lag = client.tasks.get(task, (None, None))
    if share is None:
        return Text("·", "dim")
    symbol, style, _ = _FACES[share]
    return Text(f"{symbol} {lag}" if share in {Share.WARMING, Share.RESTORING} and lag else symbol, style)


def _bars(board: Board) -> Table:
    bars = Table(box=None, show_header=False, padding=(0, 1), expand=True)
    bars.add_column(no_wrap=True)
    bars.add_column(ratio=1)
    bars.add_column(justify="right", no_wrap=True)
    for words, done, of in (
        ("flights produced", board.produced, board.total),
        ("delays in the result", board.counted, board.to_count),
    ):
        bars.add_row(words, ProgressBar(total=max(of, 1), completed=min(done, max(of, 1))), f"{done:,} of {of:,}")
    return bars


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
