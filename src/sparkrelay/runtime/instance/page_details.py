"""What the live page shows of an instance beside its snapshot; made from any thread, it stops nobody."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final

from sparkrelay.observe.details import InstanceDetails
from sparkrelay.settings import host_and_port

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.process.context import RuntimeContext
    from sparkrelay.runtime.process.process_threads import ProcessThreads

__all__ = ["page_address", "page_details"]

_EVERYWHERE: Final = frozenset({"0.0.0.0", "::", "[::]"})  # noqa: S104 - it is compared with
_BLOCK: Final = 512


def page_details(context: RuntimeContext, processes: Sequence[ProcessThreads]) -> InstanceDetails:
    """Describe an instance."""
    threads = [thread for process in processes for thread in process.threads]
    notice = next((thread.notice for thread in reversed(threads) if thread.notice.processes), None)
    layout = next((thread.tasks.layout for thread in threads if thread.tasks.layout is not None), None)
    return InstanceDetails(
        config=context.config.displayed(),
        graph=context.topology.graph(),
        plan=[] if layout is None else list(map(str, sorted(layout.tasks))),
        members={} if notice is None else {name: notice.pages.get(name, "") for name in notice.processes},
        warming={} if notice is None else notice.warming,
        state_bytes=_state_bytes(processes),
        watermarks=context.progress.watermarks,
        reports=context.progress.recent,
        rebalances=context.stories.entries,
    )


def page_address(config: StreamsConfig) -> str:
    """Return where the group's other instances find this one's page; empty if it has none."""
    if not config.metrics_port:
        return ""
    if config.metrics_server:
        return config.metrics_server
    host = config.metrics_host
    if host in _EVERYWHERE:
        host = _address_towards(config.bootstrap_servers) or socket.gethostname()
    return f"[{host}]:{config.metrics_port}" if ":" in host.strip("[]") else f"{host}:{config.metrics_port}"


def _address_towards(servers: str) -> str | None:
    """Return this machine's address on the way to the first broker that has one; nothing is sent."""
    for server in servers.split(","):
        try:
            host, port = host_and_port(server.strip())
            found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_DGRAM)
            family, kind, protocol, _, address = found[0]
            with socket.socket(family, kind, protocol) as way:
                way.connect(address)
                return str(way.getsockname()[0])
        except (OSError, ValueError):
            continue
    return None


def _state_bytes(processes: Sequence[ProcessThreads]) -> dict[tuple[str, str], int]:
    """Return what the tasks' state takes on disk, where it is on this machine."""
    found = {}
    for process in processes:
        if process.target.executor is not None:
            continue
        for thread in process.threads:
            for task in thread.tasks.all():
                if task.directory is not None:
                    found[process.process_id, str(task.id)] = _on_disk(task.directory)
    return found


def _on_disk(directory: str) -> int:
    total = 0
    for folder, _, files in os.walk(directory):
        for name in files:
            try:
                total += os.stat(os.path.join(folder, name)).st_blocks * _BLOCK  # noqa: PTH116, PTH118 - many files
            except OSError:
                continue  # removed meanwhile
    return total
