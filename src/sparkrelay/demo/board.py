"""The state of the demo: who owns which task, how far each instance is, and what happened, in words.

Pure: it takes timestamped reports of the children.
"""

from __future__ import annotations

import enum
import re
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.types import TaskId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_RATE_WINDOW_S: Final = 3.0
#: Summaries, which repeat single decisions or what the picture shows.
_SUMMARIES: Final = re.compile(r"^leads the rebalance|generation \d+")
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Share(enum.IntEnum):
    """How an instance has a task. Where its executors differ, the first value counts."""

    ACTIVE = enum.auto()
    RESTORING = enum.auto()
    WARMING = enum.auto()
    STANDBY = enum.auto()


@dataclass(slots=True)
class Client:
    """An instance, by its last reports.

    Attributes:
        phase: its activity, in a word or two.
        executors: Spark executor (empty: the driver) -> task -> share, and the copy's lag in changelog offsets, None if
            not known yet.
        behind: unprocessed input records of its active tasks.
        batches: micro-batches so far.
        rate: flights per second, lately; 0 for an instance whose tasks all read the repartition topic.
        gone: it has ended, or was killed.
        seen: times and counts of flights read, within the rate's window.
    """

    name: str
    phase: str = "starting Spark"
    executors: dict[str, dict[str, tuple[Share, int | None]]] = field(default_factory=dict)
    behind: int = 0
    batches: int = 0
    rate: float = 0.0
    gone: bool = False
    spark_at: float = 0.0
    spark_version: str = ""
    failure: str | None = None
    status: str = ""
    seen: deque[tuple[float, int]] = field(default_factory=deque)

    @property
    def tasks(self) -> dict[str, tuple[Share, int | None]]:
        """Task -> share and lag, of the whole instance."""
        held = (each for tasks in self.executors.values() for each in tasks.items())
        return dict(sorted(held, key=lambda each: -each[1][0]))

    def having(self, *shares: Share) -> frozenset[str]:
        """Return the tasks that it has in one of these ways."""
        return frozenset(task for task, (share, _) in self.tasks.items() if share in shares)


class Board:
    """The state of the demo.

    Args:
        acceptable_lag: ``acceptable.recovery.lag``, the greatest lag in offsets of a caught-up copy.

    Attributes:
        owners: task -> the instance that ran it last.
        notes: seconds since the beginning, and what happened.
        changed_at: seconds since the beginning, of the last event.
    """

    def __init__(self, *, acceptable_lag: int) -> None:
        self._acceptable_lag = acceptable_lag
        self._processes: dict[str, str] = {}
        self.clients: dict[str, Client] = {}
        self.owners: dict[str, str] = {}
        self.notes: list[tuple[float, str]] = []
        self.title = ""
        self.elapsed = 0.0
        self.changed_at = 0.0
        self.total = self.produced = self.counted = self.to_count = 0

    def add(self, name: str) -> Client:
        """Add an instance that is being started."""
        client = self.clients[name] = Client(name)
        return client

    def note(self, text: str) -> None:
        """Record an event."""
        self.changed_at = self.elapsed
        self.notes.append((self.elapsed, text))

    def end(self, name: str, phase: str) -> None:
        """Record that an instance is gone."""
        self.clients[name] = Client(name, phase, gone=True, spark_version=self.clients[name].spark_version)

    def apply(self, name: str, what: Mapping[str, Any]) -> None:
        """Apply a report of an instance; late reports of a dead one are dropped."""
        client = self.clients[name]
        if client.gone:
            return
        match what["event"]:
            case "spark":
                client.spark_at, client.spark_version, client.phase = what["at"], what["version"], "joining"
                self.note(f"{name}: the Spark session is up; joining the group")
            case "state":
                client.phase = str(what["state"]).lower().replace("_", " ")
                self.changed_at = self.elapsed
            case "tasks":
                client.behind, client.batches, client.status = what["behind"], what["batches"], what["status"]
                self._update_rate(client, what["at"], what["records"])
                self._update_tasks(client, what["threads"])
            case "log":
                self.changed_at = self.elapsed
                if not _SUMMARIES.search(what["text"]):
                    # The runtime logs process ids; the demo shows names.
                    self.note(_UUID.sub(lambda match: self._processes.get(match[0], match[0][:8]), what["text"]))
            case "failed":
                client.failure = what["text"]

    def _update_rate(self, client: Client, at: float, records: int) -> None:
        seen = client.seen
        seen.append((at, records))
        while len(seen) > 2 and at - seen[0][0] > _RATE_WINDOW_S:
            seen.popleft()
        first_at, first_records = seen[0]
        client.rate = (records - first_records) / (at - first_at) if at > first_at else 0.0

    def _update_tasks(self, client: Client, threads: Iterable[Mapping[str, Any]]) -> None:
        before = {task: share for task, (share, _) in client.tasks.items()}
        client.executors = {}
        for thread in threads:
            executor = thread["executor"] or ""
            self._processes[thread["process"]] = f"{client.name}/{executor}" if executor else client.name
            held = {task: (self._share(state, lag), lag) for task, (state, lag) in thread["tasks"].items()}
            client.executors.setdefault(executor, {}).update(held)
        if before != {task: share for task, (share, _) in client.tasks.items()}:
            self.changed_at = self.elapsed
        if warming := {t for t in client.having(Share.WARMING) if before.get(t) is not Share.WARMING}:
            self.note(f"{client.name} warms copies of {_list(warming)}: their owner works until they have caught up")
        taken: dict[str | None, list[str]] = {}
        for task in client.having(Share.ACTIVE):
            if (owner := self.owners.get(task)) != client.name:
                taken.setdefault(owner, []).append(task)
                self.owners[task] = client.name
        for owner, tasks in taken.items():
            if owner is None:
                self.note(f"{client.name} runs {_list(tasks)}")
            elif self.clients[owner].gone:
                self.note(f"{client.name} continues {_list(tasks)}, which {owner} had")
            else:
                self.note(f"{client.name} took over {_list(tasks)} from {owner}, with warm state")

    def _share(self, state: str, lag: int | None) -> Share:
        if state == "running":
            return Share.ACTIVE
        if state == "standby":
            return Share.WARMING if lag is None or lag > self._acceptable_lag else Share.STANDBY
        return Share.RESTORING


def _list(tasks: Iterable[str]) -> str:
    return ", ".join(sorted(tasks, key=TaskId.parse))
