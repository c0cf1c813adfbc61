"""Details of an instance for the live page. Thread-safe, without locks."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from sparkrelay.observe.details import InstanceDetails
from sparkrelay.settings import host_and_port

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.process.context import RuntimeContext
    from sparkrelay.runtime.process.process_threads import ProcessThreads

_EVERYWHERE: Final = frozenset({"0.0.0.0", "::", "[::]"})  # noqa: S104 - only compared with


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
        state_bytes={
            (process.process_id, str(task.id)): task.copy.disk_bytes
            for process in processes
            for thread in process.threads
            for task in thread.tasks.all()
            if task.copy.disk_bytes is not None
        },
        watermarks=context.progress.watermarks,
        reports=context.progress.recent,
        rebalances=context.stories.entries,
    )


def page_address(config: StreamsConfig) -> str:
    """Return the address of this instance's page for the group's other instances; empty if it has none."""
    if not config.metrics_port:
        return ""
    if config.metrics_server:
        return config.metrics_server
    host = config.metrics_host
    if host in _EVERYWHERE:
        host = _address_towards(config.bootstrap_servers) or socket.gethostname()
    return f"[{host}]:{config.metrics_port}" if ":" in host.strip("[]") else f"{host}:{config.metrics_port}"


def _address_towards(servers: str) -> str | None:
    """Return this machine's address on the route to the first reachable broker; nothing is sent."""
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
