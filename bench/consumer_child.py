"""One consumer, or a hundred, in a process of its own: ``python -m bench.consumer_child ORDERS``.

Orders name a ``system`` of ``consumer_readers`` and a ``task``. Reports, see ``instance``:

    ready    it has its partitions and has polled: rss_mb
    drained  all records came: records and seconds, from assigning; the same without the first batch, and cpu_s (user
             and system time of this process meanwhile)
    stamped  some records came, each this many seconds after it was sent: waits
    status   what a member saw of a rebalance: see ``_watch_rebalance``
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from bench.consumer_readers import PYTHON_READERS, Reader
from bench.instance import run_instance
from sparkrelay.consumer import Consumer, NetworkThread

if TYPE_CHECKING:
    from bench.instance import Reporter, Stopping

_READY_TIMEOUT_S = 120.0
_REPORT_S = 0.5


def run(orders: dict[str, Any], report: Reporter, stopping: Stopping) -> None:
    """Do the task."""
    task = {"drain": _drain, "latency": _latency, "crowd": _crowd, "rebalance": _watch_rebalance}[orders["task"]]
    task(orders, report, stopping)


def _make(orders: dict[str, Any], **more: Any) -> Reader:
    reader: Reader = PYTHON_READERS[orders["system"]](orders["servers"], orders["topic"], **more)
    return reader


def _drain(orders: dict[str, Any], report: Reporter, stopping: Stopping) -> None:
    """Read the topic once for warmth, as far as ``warm_up``, and once from its start to its end for the figures."""
    del stopping
    reader = _make(orders)
    reader.assign(orders["partitions"], at_end=False)
    _read(reader, orders["warm_up"])
    reader.close()
    reader = _make(orders)
    began = time.perf_counter()
    reader.assign(orders["partitions"], at_end=False)
    first = _read(reader, 1)
    first_at, cpu = time.perf_counter(), time.process_time()
    records = first + _read(reader, orders["records"] - first)
    ended = time.perf_counter()
    report(
        "drained",
        records=records,
        seconds=ended - began,
        steady_records=records - first,
        steady_seconds=ended - first_at,
        cpu_s=time.process_time() - cpu,
    )
    reader.close()


def _read(reader: Reader, records: int) -> int:
    """Read until so many records came, or none for a long time."""
    count, last = 0, time.monotonic()
    while count < records and time.monotonic() - last < _READY_TIMEOUT_S:
        if got := reader.read(1.0):
            count += got
            last = time.monotonic()
    return count


def _latency(orders: dict[str, Any], report: Reporter, stopping: Stopping) -> None:
    reader = _make(orders)
    reader.assign(orders["partitions"], at_end=True)
    reader.read(1.0)
    report("ready", rss_mb=rss_mb())
    waits: list[float] = []
    reported_at = time.monotonic()
    while not stopping.wait(0):
        stamps = reader.stamps(0.2)
        now = time.monotonic()
        waits += [now - stamp for stamp in stamps]
        if now - reported_at >= _REPORT_S:
            report("stamped", waits=[round(wait, 6) for wait in waits])
            waits, reported_at = [], now
    reader.close()


def _crowd(orders: dict[str, Any], report: Reporter, stopping: Stopping) -> None:
    """Have ``members`` consumers in one group, each polled by a thread of its own, until asked to stop."""
    threading.stack_size(256 * 1024)
    network = NetworkThread() if orders["members"] > 1 else None
    readers = []
    for _ in range(orders["members"]):
        own = {"network": network, **_COOPERATIVE} if orders["system"] == "SparkRelay" else {}
        readers.append(_make(orders, group=orders["group"], **own))
    stop = threading.Event()

    def poll(reader: Reader) -> None:
        reader.subscribe()
        while not stop.is_set():
            reader.read(orders["poll_s"])
        reader.close()

    threads = [threading.Thread(target=poll, args=(reader,), daemon=True) for reader in readers]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + _READY_TIMEOUT_S
    while not all(reader.holds for reader in readers):
        if time.monotonic() > deadline:
            holding = sum(reader.holds for reader in readers)
            raise TimeoutError(f"{holding} of {len(readers)} members have partitions after {_READY_TIMEOUT_S:g} s")
        time.sleep(0.1)
    report("ready", rss_mb=rss_mb())
    while not stopping.wait(_REPORT_S):
        pass
    report("ending", rss_mb=rss_mb())
    stop.set()
    for thread in threads:
        thread.join(orders["poll_s"] + 30)
    if network is not None:
        network.close()


_COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}


def _watch_rebalance(orders: dict[str, Any], report: Reporter, stopping: Stopping) -> None:
    """Be a member whose ``on_revoked`` takes ``callback_s`` seconds; report what happened meanwhile.

    ``status`` has: when a callback began and ended (monotonic), how many heartbeats were answered in it and the longest
    pause between two, records read and the longest pause between two reads that brought some, generation, and how
    often partitions were lost.
    """
    state = {"beats": 0.0, "beat_gap": 0.0, "lost": 0, "callbacks": 0, "callback_s": 0.0}
    inside = threading.Event()
    done = threading.Event()

    def watch(consumer: Consumer) -> None:
        while not done.wait(0.05):
            if inside.is_set():
                state["beat_gap"] = max(state["beat_gap"], consumer.metrics()["last-heartbeat-seconds-ago"])

    def revoked(consumer: Consumer, partitions: list[Any]) -> None:
        del partitions
        before, began = consumer.metrics()["heartbeat-total"], time.monotonic()
        inside.set()
        time.sleep(orders["callback_s"])
        inside.clear()
        state["callbacks"] += 1
        state["callback_s"] += time.monotonic() - began
        state["beats"] += consumer.metrics()["heartbeat-total"] - before

    def lost(consumer: Consumer, partitions: list[Any]) -> None:
        del consumer, partitions
        state["lost"] += 1

    config = {"bootstrap.servers": orders["servers"], "group.id": orders["group"], "enable.auto.commit": False}
    with Consumer({**config, **_COOPERATIVE, "auto.offset.reset": "latest"}) as consumer:
        consumer.subscribe([orders["topic"]], on_revoked=revoked, on_lost=lost)
        watcher = threading.Thread(target=watch, args=(consumer,), daemon=True)
        watcher.start()
        ready, reported_at, last, records, pause = False, time.monotonic(), None, 0, 0.0
        while not stopping.wait(0):
            rows = consumer.poll(0.1).num_rows
            now = time.monotonic()
            if not ready and consumer.assignment():
                ready = True
                report("ready", rss_mb=rss_mb())
            if rows:
                records += rows
                pause = max(pause, now - last) if last is not None else pause
                last = now
            if ready and now - reported_at >= _REPORT_S:
                reported_at = now
                report("status", records=records, pause_s=pause, held=len(consumer.assignment()), **state)
        done.set()
        watcher.join()


def rss_mb() -> float:
    """Return this process's resident memory."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - not a path of anybody's
        return round(int(file.read().split()[1]) * 4096 / 1e6, 1)


if __name__ == "__main__":
    sys.exit(run_instance(run))
