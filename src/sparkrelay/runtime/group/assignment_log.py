"""The log of a rebalance at each member: the group's processes, the cause, what moved here, how long it took.

It has one line when the assignment arrives and one when every task is in service, at INFO; the leader also logs each
decision with its reason at DEBUG. Only the leader knows the cause, so it sends a :class:`Notice` with the assignment,
and all members log the same. Pure.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sparkrelay.observe.rebalance_stories import RebalanceStories

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from sparkrelay.types import ProcessId, TaskId

log = logging.getLogger(__name__)

#: Tasks and processes named in a line.
_MOST_NAMED: Final = 10
#: Tasks named in a move on the page.
_MOST_KEPT: Final = 40
_UNKNOWN: Final = "the leader does not say why"


@dataclass(frozen=True, slots=True)
class Notice:
    """The leader's message to every member about a rebalance.

    Attributes:
        processes: the group's processes, as the first 8 characters of their ids.
        why: the cause, as far as the leader knows.
        warming: process id -> tasks that move there once its copy, which is behind for the leader, has caught up.
        pages: process, as in ``processes`` -> address of its instance's page, if it has one.
    """

    processes: tuple[str, ...] = ()
    why: str = _UNKNOWN
    warming: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pages: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        processes: Iterable[ProcessId],
        why: str,
        warming: Mapping[ProcessId, Collection[TaskId]] | None = None,
        pages: Mapping[ProcessId, str] | None = None,
    ) -> Notice:
        """Return the notice for full process ids."""
        warm = {str(process): tuple(map(str, sorted(tasks))) for process, tasks in (warming or {}).items() if tasks}
        names = tuple(sorted({str(process)[:8] for process in processes}))
        return cls(names, why, warm, {str(process)[:8]: page for process, page in (pages or {}).items()})

    def warms(self, process: ProcessId) -> tuple[str, ...]:
        """Return the tasks that are to move to this process."""
        return self.warming.get(str(process), ())

    def encode(self) -> bytes:
        """Return the notice as JSON."""
        fields = {"processes": self.processes, "why": self.why, "warming": self.warming}
        return json.dumps({**fields, **({"pages": self.pages} if self.pages else {})}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Notice:
        """Return the notice; empty if this release cannot read it."""
        try:
            read = json.loads(data)
            warming = {str(name): tuple(map(str, tasks)) for name, tasks in read.get("warming", {}).items()}
            pages = {str(name): str(page) for name, page in read.get("pages", {}).items()}
            return cls(tuple(map(str, read["processes"])), str(read["why"]), warming, pages)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return cls()


def why(
    now: Collection[str], before: Collection[str], *, again: Collection[str], asked: str | None, begins: bool = False
) -> str:
    """Return the cause of a rebalance, by the group's processes now and before (empty if the leader took no part).

    ``again`` are processes that rejoined, ``asked`` is a member's reason if nobody joined or left, and ``begins`` is
    True if no member runs anything yet.
    """
    if not before:
        return "the group begins" if begins else "the leader is new to the group"
    came, left = sorted(set(now) - set(before)), sorted(set(before) - set(now))
    parts = [
        f"{listed(names)} {what}" for names, what in ((came, "joined"), (left, "left"), (sorted(again), "rejoined"))
        if names
    ]  # fmt: skip
    return ", ".join(parts) or asked or "a member asked for it"


class AssignmentLog:
    """The log of one member, called by its stream thread.

    ``finished`` receives the duration of each rebalance in seconds, ``show`` each INFO line, to print it as well.
    """

    def __init__(
        self,
        name: str,
        finished: Callable[[float], None],
        show: Callable[[logging.Logger, str], None] = lambda *_: None,
        stories: RebalanceStories | None = None,
    ) -> None:
        self._show = show
        self._stories = stories or RebalanceStories()
        self._name = name
        self._finished = finished
        self._active: frozenset[TaskId] = frozenset()
        self._standby: frozenset[TaskId] = frozenset()
        #: When the current rebalance began, and when its newest assignment arrived; None outside of one.
        self._began: float | None = None
        self._assigned: float | None = None
        self._generation = -1
        self._opened: frozenset[TaskId] = frozenset()
        self._moved = False

    def joins(self, now: float) -> None:
        """Record that the member joins, which begins a rebalance unless one is in progress."""
        if self._began is None:
            self._began = now
        self._assigned = None

    def decided(self, why: str, lines: Sequence[str]) -> None:
        """Record the leader's decision; its generation is that of the next assignment."""
        self._stories.decided(self._name, why, lines)

    def loses(self) -> None:
        """Record that the member was expelled: others may run its tasks."""
        self._active = frozenset()

    def assigned(
        self, notice: Notice, generation: int, active: Collection[TaskId], standby: Collection[TaskId], now: float
    ) -> None:
        """Log what an assignment changes here."""
        active, standby = frozenset(active), frozenset(standby)
        self._began = now if self._began is None else self._began
        self._assigned, self._generation = now, generation
        had, copies = self._active, self._standby
        changes = (
            ("gains", active - had - copies),
            ("promotes", active & copies),
            ("demotes", standby & had),
            ("gives up", had - active - standby),
            ("new standby of", standby - had - copies),
            ("no standby of", copies - active - standby),
        )
        self._active, self._standby = active, standby
        self._opened |= active - had
        self._opened &= active
        moved = "; ".join(f"{what} {listed(sorted(tasks))}" for what, tasks in changes if tasks)
        self._moved = self._moved or bool(moved)
        count = len(notice.processes)
        processes = f"{count} process" if count == 1 else f"{count} processes"
        self._stories.assigned(
            self._name,
            generation,
            why=notice.why,
            moves=[f"{what} {listed(sorted(tasks), _MOST_KEPT)}" for what, tasks in changes if tasks],
            active=len(active),
            standby=len(standby),
        )
        self._log(
            f"generation {generation}, {processes} ({listed(notice.processes)}), because {notice.why}: "
            f"{moved or 'nothing moves here'}; {len(active)} active, {len(standby)} standby now"
        )

    def in_service(self, now: float) -> None:
        """Log, once for each rebalance, that every active task is in service. Called repeatedly."""
        if self._began is None or self._assigned is None:
            return
        took, waited = now - self._began, self._assigned - self._began
        work = f"open {listed(sorted(self._opened))}" if self._opened else "let go"
        self._log(
            f"generation {self._generation}: every task in service after {took:.3f} s: {waited:.3f} s until the "
            f"assignment, {took - waited:.3f} s to {work}",
            logging.INFO if self._moved else logging.DEBUG,
        )
        self._stories.in_service(self._name, self._generation, seconds=took, until_assigned=waited)
        self._began = self._assigned = None
        self._opened, self._moved = frozenset(), False
        self._finished(took)

    def _log(self, text: str, level: int = logging.INFO) -> None:
        line = f"{self._name}: {text}"
        log.log(level, "%s", line)
        if level == logging.INFO:
            self._show(log, line)


def listed(names: Iterable[object], most: int = _MOST_NAMED) -> str:
    """Return names separated by commas, at most ``most`` of them."""
    texts = [str(name) for name in names]
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "") if texts else "none"
