"""What the demo's screen shows: who has which task, how far it is, and what happened, in plain words.

Pure: reports of the children go in with the time, a picture comes out.
"""

from __future__ import annotations

import enum
import re
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkrelay.types import TaskId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Board", "Client", "Note", "Share"]

_RATE_WINDOW_S = 3.0
#: Summaries: the board has each decision, and the picture shows what each member was given.
_ELSEWHERE = re.compile(r"^leads the rebalance|generation \d+")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Share(enum.Enum):
    """What an instance is to a task; the first that holds counts, if its executors are different things to it."""

    ACTIVE = "active"
    RESTORING = "restoring"
    WARMING = "warming"
    STANDBY = "standby"


_RANK = {share: rank for rank, share in enumerate(Share)}


@dataclass(frozen=True, slots=True)
class Note:
    """Something that happened: seconds since the demo began, and what."""

    at: float
    text: str


@dataclass(slots=True)
class Client:
    """One instance, as it last reported itself.

    Attributes:
        phase: what it is doing, in a word or two.
        tasks: task -> what it is to it, and the copy's lag in changelog offsets, None if not known yet.
        executors: Spark executor -> the same, of that executor alone; empty for an instance without.
        behind: input records of its active tasks that are not processed yet.
        records: flights read so far; an instance may have only tasks that read the repartition topic.
        batches: micro-batches so far.
        rate: flights a second, lately.
        gone: it has ended, or was killed.
    """

    name: str
    phase: str = "starting Spark"
    tasks: dict[str, tuple[Share, int | None]] = field(default_factory=dict)
    executors: dict[str, dict[str, tuple[Share, int | None]]] = field(default_factory=dict)
    behind: int = 0
    records: int = 0
    batches: int = 0
    rate: float = 0.0
    gone: bool = False
    spark_at: float | None = None
    spark_version: str = ""
    failure: str | None = None
    status: str = ""
    seen: deque[tuple[float, int]] = field(default_factory=deque)

    def having(self, *shares: Share) -> frozenset[str]:
        """Return the tasks to which it is one of these."""
        return frozenset(task for task, (share, _) in self.tasks.items() if share in shares)


class Board:
    """The state of the story.

    Args:
        acceptable_lag: lag, in offsets, from which on a copy counts as caught up (``acceptable.recovery.lag``).
    """

    def __init__(self, *, acceptable_lag: int) -> None:
        self._acceptable_lag = acceptable_lag
        self._processes: dict[str, str] = {}
        self.clients: dict[str, Client] = {}
        self.owners: dict[str, str] = {}
        self.notes: list[Note] = []
        self.title = ""
        self.elapsed = 0.0
        #: When something last happened that an onlooker would call an event, in seconds since the beginning.
        self.changed_at = 0.0
        self.total = 0
        self.produced = 0
        self.counted = 0
        self.to_count = 0

    def add(self, name: str) -> Client:
        """Add an instance that is being started."""
        client = self.clients[name] = Client(name)
        return client

    def note(self, text: str) -> None:
        """Remember that something happened."""
        self.changed_at = self.elapsed
        self.notes.append(Note(self.elapsed, text))

    def end(self, name: str, phase: str) -> None:
        """Note that an instance is gone."""
        client = self.clients[name]
        client.gone, client.phase, client.rate, client.behind = True, phase, 0.0, 0
        client.tasks, client.executors = {}, {}

    def apply(self, name: str, what: Mapping[str, Any]) -> None:
        """Take in a report of an instance."""
        client = self.clients[name]
        if client.gone:
            return
        match what["event"]:
            case "spark":
                client.spark_at, client.spark_version = what["at"], what["version"]
                client.phase = "joining"
                self.note(f"{name}: the Spark session is up; joining the group")
            case "state":
                client.phase = str(what["state"]).lower().replace("_", " ")
                self.changed_at = self.elapsed
            case "tasks":
                self._processes |= {
                    place["process"]: name if place["executor"] is None else f"{name}/{place['executor']}"
                    for place in what["places"]
                }
                client.status = what["status"]
                self._take_tasks(client, what)
            case "told":
                # What each member was given is in the leader's plan, and in the picture.
                self.changed_at = self.elapsed
                if not _ELSEWHERE.search(what["text"]):
                    self.note(self._named(what["text"]))
            case "failed":
                client.failure = what["text"]

    def _take_tasks(self, client: Client, what: Mapping[str, Any]) -> None:
        before = client.having(Share.WARMING)
        held_before = {task: share for task, (share, _) in client.tasks.items()}
        merged: dict[str, tuple[Share, int | None]] = {}
        client.executors = {}
        for place in what["places"]:
            held = {task: (self._share(state, lag), lag) for task, (state, lag) in place["tasks"].items()}
            if place["executor"] is not None:
                client.executors.setdefault(place["executor"], {}).update(held)
            for task, share in held.items():
                if task not in merged or _RANK[share[0]] < _RANK[merged[task][0]]:
                    merged[task] = share
        client.tasks = dict(sorted(merged.items(), key=lambda item: TaskId.parse(item[0])))
        if held_before != {task: share for task, (share, _) in client.tasks.items()}:
            self.changed_at = self.elapsed
        client.behind, client.records, client.batches = what["behind"], what["records"], what["batches"]
        client.seen.append((what["at"], client.records))
        while len(client.seen) > 2 and what["at"] - client.seen[0][0] > _RATE_WINDOW_S:
            client.seen.popleft()
        (first, had), (last, has) = client.seen[0], client.seen[-1]
        client.rate = (has - had) / (last - first) if last > first else 0.0
        if warming := client.having(Share.WARMING) - before:
            self.note(f"{client.name} warms copies of {_list(warming)}: the owner works on until they have caught up")
        self._take_owners(client)

    def _take_owners(self, client: Client) -> None:
        taken: dict[str | None, list[str]] = {}
        for task in client.having(Share.ACTIVE):
            owner = self.owners.get(task)
            if owner != client.name:
                taken.setdefault(owner, []).append(task)
                self.owners[task] = client.name
        for owner, tasks in taken.items():
            if owner is None:
                self.note(f"{client.name} is in service with {_list(tasks)}")
            elif self.clients[owner].gone:
                self.note(f"{client.name} carries on with {_list(tasks)}, which {owner} left behind")
            else:
                self.note(f"{client.name} has taken {_list(tasks)} over from {owner}, already at speed")

    def _share(self, state: str, lag: int | None) -> Share:
        if state == "running":
            return Share.ACTIVE
        if state == "standby":
            return Share.WARMING if lag is None or lag > self._acceptable_lag else Share.STANDBY
        return Share.RESTORING

    def _named(self, text: str) -> str:
        """Put the instances' names where the runtime has process ids."""
        return _UUID.sub(lambda match: self._processes.get(match[0], match[0][:8]), text)


def _list(tasks: Iterable[str]) -> str:
    return ", ".join(sorted(tasks, key=TaskId.parse))
