"""The group as seen by one of its instances: its own view, and the answers of the others.

A silent instance delays nobody: each is asked on its own thread, by one request at a time, and its last answer is shown
with its age. The leader sends the other members and their addresses with each assignment.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.observe.peer import ask_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Maximum age of an answer that is given again.
_FRESH_S: Final = 1.5
#: Time limit of an instance's answer, and how long the first view of the group waits for answers.
_ANSWER_S: Final = 3.0
_FIRST_ANSWERS_S: Final = 1.0
_MOST_PEERS: Final = 200
_MOST_ASKED_AT_A_TIME: Final = 24
#: States in which an instance runs nothing, whatever tasks it still reports.
_ENDED: Final = frozenset({"NOT_RUNNING", "PENDING_ERROR", "ERROR"})
_NO_PAGE: Final = "it has no page: set its metrics.port"
_ANOTHER: Final = (
    "is another instance's page: where instances are on several machines, set metrics.host or metrics.server to an "
    "address that the others reach"
)
_NOT_ASKED: Final = "not asked yet"


@dataclass(slots=True)
class _Peer:
    """What is known about another instance.

    Attributes:
        processes: of the group at this address, by the beginnings of their ids.
        view: its last answer, None if there is none.
        answered: when it answered (monotonic seconds).
        problem: why it has no current answer, None if it has.
        asking: whether a request is under way.
        asked: when the last request began.
    """

    processes: list[str] = field(default_factory=list)
    view: dict[str, Any] | None = None
    answered: float = 0.0
    problem: str | None = _NOT_ASKED
    asking: bool = False
    asked: float = float("-inf")


class GroupWatch:
    """One instance's view of the group. Thread-safe.

    Args:
        own: returns this instance's own view.
        ask: asks another one, by address, with a time limit in seconds.
    """

    def __init__(
        self, own: Callable[[], dict[str, Any]], ask: Callable[[str, float], dict[str, Any]] = ask_instance
    ) -> None:
        self._own = own
        self._ask = ask
        self._turn = threading.Lock()
        self._changed = threading.Condition()
        self._peers: dict[str, _Peer] = {}
        self._text = b""
        self._made = float("-inf")

    def text(self) -> bytes:
        """Return :meth:`view` as JSON, at most one and a half seconds old."""
        with self._turn:
            if time.monotonic() - self._made >= _FRESH_S:
                self._text = json.dumps(self.view(), allow_nan=False, separators=(",", ":")).encode()
                self._made = time.monotonic()
            return self._text

    def view(self) -> dict[str, Any]:
        """Return the group: ``instances``, this one first, and the tasks that none of them reports.

        These tasks are ``missing`` if every instance has a page, otherwise ``unknown``: one without a page may run
        them. Each instance has ``address``, ``processes``, ``own``, ``view`` (None if it never answered), ``age``
        (seconds since it answered) and ``problem`` (None if it has just answered).
        """
        own = self._own()
        ours = {process["id"][:8] for process in own["processes"]}
        others = {name: page for name, page in own["members"].items() if name not in ours}
        with self._changed:
            self._know(others)
            self._begin_asking()
            first = [peer for peer in self._peers.values() if peer.problem == _NOT_ASKED]
            if first:
                self._changed.wait_for(lambda: all(p.problem != _NOT_ASKED for p in first), _FIRST_ANSWERS_S)
            now = time.monotonic()
            instances = [
                {"address": "", "processes": sorted(ours), "own": True, "view": own, "age": 0.0, "problem": None},
                *(_shown(address, peer, now) for address, peer in sorted(self._peers.items())),
                *(
                    {"address": "", "processes": [n], "own": False, "view": None, "age": None, "problem": _NO_PAGE}
                    for n, page in sorted(others.items())
                    if not page
                ),
            ]
        missing = _missing(own["plan"], instances)
        every_page = all(others.values())
        return {
            "application": own["application"],
            "asked": own["host"],
            "now": time.time(),
            "instances": instances,
            "missing": missing if every_page else [],
            "unknown": [] if every_page else missing,
        }

    def _know(self, others: Mapping[str, str]) -> None:
        """Update the members of the group; former ones are dropped."""
        found: dict[str, list[str]] = {}
        for name, page in sorted(others.items()):
            if page and (page in found or len(found) < _MOST_PEERS):
                found.setdefault(page, []).append(name)
        self._peers = {page: self._peers.get(page) or _Peer() for page in found}
        for page, names in found.items():
            peer = self._peers[page]
            if not set(names) & set(peer.processes):
                # Another instance has the address now, so the previous answer is not its own.
                self._peers[page] = peer = _Peer()
            peer.processes = names

    def _begin_asking(self) -> None:
        free = _MOST_ASKED_AT_A_TIME - sum(peer.asking for peer in self._peers.values())
        idle = [(address, peer) for address, peer in self._peers.items() if not peer.asking]
        for address, peer in sorted(idle, key=lambda item: item[1].asked)[: max(0, free)]:
            peer.asking, peer.asked = True, time.monotonic()
            name = f"sparkrelay-metrics-asks-{address}"
            try:
                threading.Thread(target=self._ask_one, args=(address, peer), name=name, daemon=True).start()
            except RuntimeError as error:  # no more threads on this computer
                peer.asking, peer.problem = False, f"it cannot be asked: {error}"

    def _ask_one(self, address: str, peer: _Peer) -> None:
        view, problem = None, None
        try:
            view = self._ask(address, _ANSWER_S)
        except ValueError as error:
            problem = f"its answer cannot be used: {error}"
        except OSError as error:
            reason = getattr(error, "strerror", None) or error or type(error).__name__
            problem = f"it does not answer: {reason}"
        except Exception as error:  # noqa: BLE001 - the page must survive what others answer
            problem = f"it cannot be asked: {type(error).__name__}"
        with self._changed:
            if view is not None and not {one["id"][:8] for one in view["processes"]} & set(peer.processes):
                view, problem = None, f"{address} {_ANOTHER}"
            if view is not None:
                peer.view, peer.answered = view, time.monotonic()
            peer.problem, peer.asking = problem, False
            self._changed.notify_all()


def _shown(address: str, peer: _Peer, now: float) -> dict[str, Any]:
    return {
        "address": address,
        "processes": peer.processes,
        "own": False,
        "view": peer.view,
        "age": None if peer.view is None else round(now - peer.answered, 1),
        "problem": peer.problem,
    }


def _missing(plan: list[str], instances: list[dict[str, Any]]) -> list[str]:
    """Return the tasks that no answering instance runs or is about to run."""
    owned = {
        task["task"]
        for instance in instances
        if instance["view"] is not None and instance["problem"] is None and instance["view"]["state"] not in _ENDED
        for task in instance["view"]["tasks"]
        if task["role"] not in {"standby", "warming"}
    }
    return [task for task in plan if task not in owned]
