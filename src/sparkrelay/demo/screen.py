"""The demo's screen: a live picture on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sparkrelay.demo.board import Board, Client, Share
from sparkrelay.types import TaskId

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import RenderableType

__all__ = ["LiveScreen", "PlainLines", "Screen", "open_screen", "render"]

_REFRESH_S: Final = 0.2
_STATUS_S: Final = 5.0
_NOTES: Final = 12
_FACES: Final = {
    Share.ACTIVE: ("●", "bold green"),
    Share.RESTORING: ("◔", "bold yellow"),
    Share.STANDBY: ("○", "cyan"),
    Share.WARMING: ("◐", "yellow"),
}
_WORDS: Final = {
    Share.ACTIVE: "active",
    Share.STANDBY: "standby (warm copy)",
    Share.WARMING: "warming (copy catching up)",
    Share.RESTORING: "restoring",
}


class Screen(Protocol):
    """Shows the board; ``close`` leaves what was shown last, and must be called before anything else prints."""

    def show(self, board: Board) -> None:
        """Show the board as it is now; cheap to call often."""

    def say(self, what: RenderableType, *, style: str = "") -> None:
        """Print something that stays."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_screen(console: Console) -> Screen:
    """Return a live screen if the console is a terminal, else one that prints lines."""
    return LiveScreen(console) if console.is_terminal else PlainLines(console)


class LiveScreen:
    """A picture that changes in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._shown_at = 0.0
        self._board: Board | None = None

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._board is not None:
            self._live.update(render(self._board))
        self._live.stop()

    def show(self, board: Board) -> None:
        """Draw the board, at most five times a second."""
        self._board = board
        now = time.monotonic()
        if now - self._shown_at >= _REFRESH_S:
            self._shown_at = now
            self._live.update(render(board), refresh=True)

    def say(self, what: RenderableType, *, style: str = "") -> None:
        """Print above the picture."""
        self._console.print(what, style=style)


class PlainLines:
    """A line for each thing that happens, and a line of figures now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told = 0
        self._status_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show(self, board: Board) -> None:
        """Print what is new."""
        for note in board.notes[self._told :]:
            self._line(f"[{_clock(note.at)}] {note.text}")
        self._told = len(board.notes)
        if not all(client.gone for client in board.clients.values()) and board.elapsed - self._status_at >= _STATUS_S:
            self._status_at = board.elapsed
            self._line(f"[{_clock(board.elapsed)}]   {_figures(board)}")

    def say(self, what: RenderableType, *, style: str = "") -> None:
        """Print something."""
        self._console.print(what, style=style, soft_wrap=True)

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def render(board: Board) -> RenderableType:
    """Return the board as a picture."""
    return Panel(
        Group(_clients(board), _legend(), Text(), _bars(board), Text(), *_notes(board)),
        title=f"[bold]SparkRelay demo[/bold] · {board.title}",
        subtitle=_clock(board.elapsed),
        border_style="blue",
    )


def _clients(board: Board) -> Table:
    tasks = sorted(
        {task for client in board.clients.values() for task in client.tasks} | board.owners.keys(), key=TaskId.parse
    )
    table = Table(box=None, padding=(0, 1), expand=True)
    table.add_column("instance", no_wrap=True)
    for task in tasks:
        table.add_column(task, justify="center", no_wrap=True)
    table.add_column("flights/s", justify="right", no_wrap=True)
    table.add_column("behind", justify="right", no_wrap=True)
    for client in board.clients.values():
        table.add_row(_who(client), *(_face(client, task) for task in tasks), *_pace(client))
    return table


def _who(client: Client) -> Text:
    if client.gone:
        return Text(f"{client.name}  {client.phase}", style="bold red")
    return Text.assemble(
        (client.name, "bold"), "  ", (client.phase, "green" if client.phase == "running" else "yellow")
    )


def _face(client: Client, task: str) -> Text:
    held = client.tasks.get(task)
    if held is None:
        return Text("✗" if client.gone else "·", style="red" if client.gone else "dim")
    share, lag = held
    symbol, style = _FACES[share]
    return Text(f"{symbol} {lag}" if share in {Share.WARMING, Share.RESTORING} and lag else symbol, style=style)


def _pace(client: Client) -> tuple[str, str]:
    return ("", "") if client.gone else (f"{client.rate:,.0f}", f"{client.behind:,}")


def _legend() -> Text:
    legend = Text("  ", style="dim")
    for share, words in _WORDS.items():
        symbol, style = _FACES[share]
        legend.append(symbol, style=style)
        legend.append(f" {words}  ")
    return legend


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


def _notes(board: Board) -> list[Text]:
    lines = []
    for note in board.notes[-_NOTES:]:
        line = Text(f"{_clock(note.at)}  ", style="dim", no_wrap=True, overflow="ellipsis")
        line.append(note.text, style="default")
        lines.append(line)
    return lines + [Text()] * (_NOTES - len(lines))


def _figures(board: Board) -> str:
    shares = []
    for client in board.clients.values():
        if client.gone:
            shares.append(f"{client.name} {client.phase}")
            continue
        held = [f"{len(client.having(share))} {share.value}" for share in Share if client.having(share)]
        shares.append(
            f"{client.name} {client.phase}: {', '.join(held) or 'no tasks'}, {client.rate:,.0f} flights/s, "
            f"{client.behind:,} behind"
        )
    return (
        f"produced {board.produced:,} of {board.total:,}, in the result {board.counted:,} of {board.to_count:,} | "
        + " | ".join(shares)
    )


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
