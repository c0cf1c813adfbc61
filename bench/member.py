"""One instance of a group under test: started, looked at, killed or stopped."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Self

from bench.children import Instance

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.systems import System

__all__ = ["Member", "Places", "hand_overs"]

Places = dict[str, dict[str, Any]]
"""Where (Spark executor, or "" for the instance itself) -> ``active``: partitions of the tasks in service there;
``restoring`` and ``standby``: partition -> changelog offsets that the copy lacks, None while unknown."""


class Member:
    """An instance, and what it last reported; use it as a context manager.

    Args:
        name: what its log is called.
        system: whose instance.
        orders: its argument.
        logs: a folder that gets its log, None for nowhere.

    Attributes:
        places: what it has where, as last reported.
        history: (when, places), all of them, seconds since 1970.
        batches: reports of batches.
        restores: reports of restores.
        over: it was killed or stopped; its reports are not looked at any more.
    """

    def __init__(self, name: str, system: System, orders: dict[str, Any], logs: Path | None) -> None:
        self.name = name
        self.instance = Instance(system.module, orders)
        self._logs = logs
        self.places: Places = {}
        self.history: list[tuple[float, Places]] = []
        self.batches: list[dict[str, Any]] = []
        self.restores: list[dict[str, Any]] = []
        self.live = False
        self.over = False

    def look(self) -> None:
        """Take in what it has reported.

        Raises:
            BenchError: it failed, or ended on its own.
        """
        if self.over:
            return
        while (report := self.instance.next_report(0.0)) is not None:
            match report["event"]:
                case "live":
                    self.live = True
                case "tasks":
                    self.places = report["places"]
                    self.history.append((report["at"], self.places))
                case "batch":
                    self.batches.append(report)
                case "restored":
                    self.restores.append(report)

    @property
    def active(self) -> set[int]:
        """Partitions of the tasks that it has in service."""
        return {partition for place in self.places.values() for partition in place["active"]}

    def kill(self) -> None:
        """Kill it, driver and JVM and all."""
        self.over = True
        self.places = {}
        self.instance.kill()

    def stop(self) -> None:
        """Stop it in an orderly way; returns when it has ended."""
        self.over = True
        self.places = {}
        self.instance.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._logs is not None:
            shutil.copyfile(self.instance.log, self._logs / f"{self.name}.log")
        self.instance.__exit__(None, None, None)


def hand_overs(history: Sequence[tuple[float, Places]], acceptable_lag: int) -> dict[int, float]:
    """Return for each task that an instance warmed up and then got how long it waited for it, in seconds.

    Args:
        history: what the instance reported, in order: when, and its places.
        acceptable_lag: from this lag on, in changelog offsets, a copy is warm (``acceptable.recovery.lag``).
    """
    warm: dict[int, float] = {}
    got: dict[int, float] = {}
    for at, places in history:
        for place in places.values():
            for partition, lag in place["standby"].items():
                if lag is not None and lag <= acceptable_lag:
                    warm.setdefault(int(partition), at)
            for partition in place["active"]:
                got.setdefault(partition, at)
    return {partition: got[partition] - at for partition, at in warm.items() if partition in got}
