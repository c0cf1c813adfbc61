"""What the demo's screen shows: who has which task, how far it is, and what happened, in plain words.

Pure: reports of the children go in with the time, a picture comes out.
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

__all__ = ["Board", "Client", "Share"]

_RATE_WINDOW_S: Final = 3.0
#: Summaries: the board has each decision, and the picture shows what each member was given.
_ELSEWHERE: Final = re.compile(r"^leads the rebalance|generation \d+")
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Share(enum.IntEnum):
    """What an instance is to a task; the first that holds counts, if its executors are different things to it."""

    ACTIVE = enum.auto()
    RESTORING = enum.auto()
    WARMING = enum.auto()
    STANDBY = enum.auto()


@dataclass(slots=True)
class Client:
    """One instance, as it last reported itself.

    Attributes:
        phase: what it is doing, in a word or two.
        executors: Spark executor (empty: the driver) -> task -> what it is to it, and the copy's lag in changelog
            offsets, None if not known yet.
        behind: input records of its active tasks that are not processed yet.
        batches: micro-batches so far.
        rate: flights a second, lately; an instance may have only tasks that read the repartition topic.
        gone: it has ended, or was killed.
    """

    name: str
    phase: str = "starting Spark"
    executors: dict[str, dict[str, tuple[Share, int | None]]] = field(default_factory=dict)
    behind: int = 0
    batches: int = 0
    rate: float = 0.0
    gone: bool = False
    spark_at: float | None = None
    spark_version: str = ""
    failure: str | None = None
    status: str = ""
    seen: deque[tuple[float, int]] = field(default_factory=deque)

    @property
    def tasks(self) -> dict[str, tuple[Share, int | None]]:
        """Task -> what the whole instance is to it."""
        held = sorted(
            (each for tasks in self.executors.values() for each in tasks.items()), key=lambda each: -each[1][0]
        )
        return dict(held)

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
        #: What happened, and when, in seconds since the beginning.
        self.notes: list[tuple[float, str]] = []
        self.title = ""
        self.elapsed = 0.0
        #: When something last happened that an onlooker would call an event.
        self.changed_at = 0.0
        self.total = self.produced = self.counted = self.to_count = 0

    def add(self, name: str) -> Client:
        """Add an instance that is being started."""
        client = self.clients[name] = Client(name)
        return client

    def note(self, text: str) -> None:
        """Remember that something happened."""
        self.changed_at = self.elapsed
        self.notes.append((self.elapsed, text))

    def end(self, name: str, phase: str) -> None:
        """Note that an instance is gone."""
        self.clients[name] = Client(name, phase, gone=True, spark_version=self.clients[name].spark_version)

    def apply(self, name: str, what: Mapping[str, Any]) -> None:
        """Take in a report of an instance."""
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
                self._take_rate(client, what["at"], what["records"])
                self._take_tasks(client, what["threads"])
            case "log":
                # What each member was given is in the leader's plan, and in the picture.
                self.changed_at = self.elapsed
                if not _ELSEWHERE.search(what["text"]):
                    # The instances' names are put where the runtime has process ids.
                    self.note(_UUID.sub(lambda match: self._processes.get(match[0], match[0][:8]), what["text"]))
            case "failed":
                client.failure = what["text"]

    def _take_rate(self, client: Client, at: float, records: int) -> None:
        seen = client.seen
        seen.append((at, records))
        while len(seen) > 2 and at - seen[0][0] > _RATE_WINDOW_S:
            seen.popleft()
        (first, had), (last, has) = seen[0], seen[-1]
        client.rate = (has - had) / (last - first) if last > first else 0.0

    def _take_tasks(self, client: Client, threads: Iterable[Mapping[str, Any]]) -> None:
        before = {task: share for task, (share, _) in client.tasks.items()}
        client.executors = {}
        for thread in threads:
            executor = thread["executor"] or ""
            self._processes[thread["process"]] = f"{client.name}/{executor}" if executor else client.name
            held = {task: (self._share(state, lag), lag) for task, (state, lag) in thread["tasks"].items()}
            client.executors.setdefault(executor, {}).update(held)
        if before != {task: share for task, (share, _) in client.tasks.items()}:
            self.changed_at = self.elapsed
        warm_before = {task for task, share in before.items() if share is Share.WARMING}
        if warming := client.having(Share.WARMING) - warm_before:
            self.note(f"{client.name} warms copies of {_list(warming)}: the owner works on until they have caught up")
        taken: dict[str | None, list[str]] = {}
        for task in client.having(Share.ACTIVE):
            if self.owners.get(task) != client.name:
                taken.setdefault(self.owners.get(task), []).append(task)
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


def _list(tasks: Iterable[str]) -> str:
    return ", ".join(sorted(tasks, key=TaskId.parse))
