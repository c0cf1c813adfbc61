"""The scenarios of ``bench.availability``: each runs one system, and returns its figures."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from bench.children import BenchError
from bench.group import Group
from bench.member import hand_overs
from bench.processes import executor_pid
from bench.systems import RELAY, STREAMS, STRUCTURED
from bench.workload import PARTITIONS, Workload, write_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.group import Scale
    from bench.member import Member
    from bench.systems import System

__all__ = ["SCENARIOS"]

_ALL = set(range(PARTITIONS))
_COPIES = {"num.standby.replicas": 1}
_EXECUTORS = 2
_BACK_S = 120.0


def kill(servers: str, system: System, scale: Scale) -> dict[str, Any]:
    """One of two instances is killed; the other has copies of its tasks."""
    with Group(servers, system, scale, "kill", _COPIES) as group:
        a, b = group.start("a"), group.start("b")
        group.wait_shared(2, standbys=1)
        group.load(standbys=1, places=2)
        with group.feeding() as show:
            show.begin_measuring()
            lost = a.active
            show.event()
            a.kill()
            group.wait("b has every task", lambda: b.active == _ALL)
            show.wait_quiet()
            return {**show.figures(lost), **show.finish()}


def stop(servers: str, system: System, scale: Scale) -> dict[str, Any]:
    """One of two instances is stopped in an orderly way; the other has copies of its tasks."""
    with Group(servers, system, scale, "stop", _COPIES) as group:
        # Kafka Streams leaves its group only when it is asked to; ours always does.
        a, b = group.start("a", leave_group=True), group.start("b")
        group.wait_shared(2, standbys=1)
        group.load(standbys=1, places=2)
        with group.feeding() as show:
            show.begin_measuring()
            lost = a.active
            show.event()
            took = _stop_beside(group, a.stop)
            group.wait("b has every task", lambda: b.active == _ALL)
            show.wait_quiet()
            return {**show.figures(lost), "stop_s": round(took, 2), **show.finish()}


def bounce(servers: str, system: System, scale: Scale) -> dict[str, Any]:
    """One of two instances is stopped in an orderly way and started again on its disk, as in a rolling upgrade."""
    with Group(servers, system, scale, "bounce", _COPIES) as group:
        a = group.start("a", leave_group=True)
        group.start("b")
        group.wait_shared(2, standbys=1)
        group.load(standbys=1, places=2)
        with group.feeding() as show:
            show.begin_measuring()
            at = show.event()
            _stop_beside(group, a.stop)
            group.start("c", folder="a")
            group.wait("both have their half", lambda: group.shared(2, standbys=1))
            shared = time.time() - at
            show.wait_quiet()
            return {**show.figures(_ALL), "shared_after_s": round(shared, 1), **show.finish()}


def executor(servers: str, system: System, scale: Scale) -> dict[str, Any]:
    """One of two executors of one application is killed; the other has copies of its tasks."""
    with Group(servers, system, scale, "executor", _COPIES) as group:
        a = group.start("a", executors=_EXECUTORS)
        group.wait_shared(_EXECUTORS, standbys=1)
        group.load(standbys=1, places=_EXECUTORS)
        with group.feeding() as show:
            show.begin_measuring()
            victim = min(a.places)
            lost = set(a.places[victim]["active"])
            pid = executor_pid(a.instance.pid, victim)
            if pid is None:
                raise BenchError(f"the JVM of executor {victim} was not found")
            show.event()
            os.kill(pid, signal.SIGKILL)
            group.wait("the executor is gone", lambda: victim not in a.places)
            group.wait("every task is in service", group.whole)
            show.wait_quiet()
            figures = show.figures(lost)
            # Spark starts another one, which takes its share: that is part of the event, and counted apart.
            back = group.wait("another executor has its share", lambda: group.shared(_EXECUTORS), _BACK_S)
            show.wait_quiet()
            whole = show.figures(_ALL)
            figures |= {"gap_to_the_end_s": whole["gap_s"], "back_s": round(figures["window_s"] + back, 1)}
            return {**figures, **show.finish()}


def scale_out(servers: str, system: System, scale: Scale) -> dict[str, Any]:
    """An instance that has everything is joined by a second one, which warms up and takes its half."""
    with Group(servers, system, scale, "scale-out") as group:
        group.start("a")
        group.wait_shared(1)
        group.load()
        with group.feeding() as show:
            show.begin_measuring()
            at = show.event()
            b = group.start("b")
            group.wait("both have their half", lambda: group.shared(2))
            shared = time.time() - at
            waits = hand_overs(b.history, group.acceptable_lag)
            joined = next((when for when, places in b.history if places), at) - at
            show.wait_quiet()
            figures = {
                **show.figures(_ALL),
                "member_after_s": round(joined, 1),
                "shared_after_s": round(shared, 1),
                "hand_over_s": round(max(waits.values()), 2) if waits else None,
                "warmed": len(waits),
            }
            return {**figures, **show.finish()}


def restore(servers: str, system: System, scale: Scale) -> dict[str, Any]:
    """An instance loses its disk, and builds its state from the changelog."""
    with Group(servers, system, scale, "restore") as group:
        a = group.start("a", cores=2)
        group.wait_shared(1)
        group.load()
        a.stop()
        shutil.rmtree(group.folder("a"))
        b = group.start("b", cores=2, folder="a")
        group.wait("the state is restored", lambda: b.active == _ALL and bool(b.restores))
        figures = _restored(b)
        group.stop()
        group.check(group.before)
        return {**figures, "exact": True, "load_average_before": group.load_before}


def kill_alone(servers: str, system: System, scale: Scale) -> dict[str, Any]:
    """One of two instances is killed; the other has no copies of its tasks, and restores them."""
    with Group(servers, system, scale, "kill-alone") as group:
        a, b = group.start("a"), group.start("b")
        group.wait_shared(2)
        group.load(places=2)
        with group.feeding() as show:
            show.begin_measuring()
            lost = a.active
            b.restores.clear()
            show.event()
            a.kill()
            group.wait("b has every task", lambda: b.active == _ALL)
            show.wait_quiet()
            return {**show.figures(lost), **_restored(b), **show.finish()}


def _restored(member: Member) -> dict[str, Any]:
    """Return what the restores of an instance add up to, from the beginning of the first to the end of the last."""
    if not member.restores:
        return {}
    took = max(part["ended"] for part in member.restores) - min(part["began"] for part in member.restores)
    count = sum(part["count"] for part in member.restores)
    return {"restored": count, "restore_s": round(took, 2), "restored_per_s": round(count / took)}


def structured(servers: str, system: System, scale: Scale) -> dict[str, Any]:
    """A driver of Structured Streaming is killed, and at once started again on its checkpoint."""
    with Group(servers, system, scale, "structured") as group:
        a = group.start("a", cores=2)
        group.wait("the query takes input", lambda: a.live)
        group.load()
        with group.feeding() as show:
            show.begin_measuring()
            show.event()
            a.kill()
            b = group.start("b", cores=2, folder="a")
            group.wait("a batch is done again", lambda: bool(b.batches))
            show.wait_quiet()
            return {**show.figures(_ALL), **show.finish()}


def standby_cost(servers: str, system: System, scale: Scale) -> dict[str, Any]:
    """Two instances drain a topic, each its half: without copies, and with one of each task."""
    (without, without_cpu), (with_one, with_one_cpu) = (_drain(servers, system, scale, number) for number in (0, 1))
    return {
        "without_rps": round(without),
        "with_rps": round(with_one),
        "standby_ratio": round(with_one / without, 2),
        # It hardly depends on what else the machine does.
        "standby_cpu_ratio": round(with_one_cpu / without_cpu, 2),
        "exact": True,
    }


def _drain(servers: str, system: System, scale: Scale, standbys: int) -> tuple[float, float]:
    """Return the records of all passes but the first by seconds, and by the instances' seconds of processor time."""
    workload = Workload(records=scale.keys, keys=scale.keys, passes=4)
    settings = {"num.standby.replicas": standbys, "max.batch.records": max(1000, scale.keys // PARTITIONS // 2)}
    with Group(servers, system, scale, f"standbys-{standbys}", settings) as group:
        for name in ("a", "b"):
            group.start(name, paused=True)
        # Both have their tasks, and nothing to do: nobody produces while it is measured.
        group.wait_shared(2, standbys=standbys)
        write_records(servers, group.source, list(workload.columns()), passes=workload.passes)
        for member in group.members:
            member.instance.go()

        def batches() -> list[dict[str, Any]]:
            return sorted((batch for member in group.members for batch in member.batches), key=lambda one: one["ended"])

        cpu: list[tuple[int, float]] = []

        def drained() -> bool:
            taken: int = sum(batch["rows"] for batch in batches())
            if taken >= workload.records and (not cpu or taken > cpu[-1][0]):
                cpu.append((taken, sum(member.instance.cpu.seconds() for member in group.members)))
            return taken >= workload.records * workload.passes

        group.wait("everything is drained", drained)
        done = batches()
        group.stop()
        group.check(workload.expected())
    taken = 0
    cold = 0
    while taken < workload.records:
        taken += done[cold]["rows"]
        cold += 1
    rest = workload.records * workload.passes - taken
    (first, before), (last, after) = cpu[0], cpu[-1]
    return rest / (done[-1]["ended"] - done[cold - 1]["ended"]), (last - first) / max(after - before, 0.01)


def _stop_beside(group: Group, stop: Callable[[], None]) -> float:
    """Stop an instance while the others are looked at; returns seconds."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            stop()
        except BenchError as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="bench-stop", daemon=True)
    began = time.perf_counter()
    thread.start()
    group.wait("the instance has ended", lambda: not thread.is_alive())
    took = time.perf_counter() - began
    if failed:
        raise failed[0]
    return took


#: Name -> what it does, and which systems have it.
SCENARIOS: dict[str, tuple[Callable[[str, System, Scale], dict[str, Any]], tuple[System, ...]]] = {
    "kill": (kill, (RELAY, STREAMS)),
    "executor": (executor, (RELAY,)),
    "stop": (stop, (RELAY, STREAMS)),
    "bounce": (bounce, (RELAY, STREAMS)),
    "restore": (restore, (RELAY, STREAMS)),
    "kill_alone": (kill_alone, (RELAY, STREAMS)),
    "scale_out": (scale_out, (RELAY, STREAMS)),
    "structured": (structured, (STRUCTURED,)),
    "standby_cost": (standby_cost, (RELAY,)),
}
