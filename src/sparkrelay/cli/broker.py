"""``sparkrelay broker``: the development Kafka."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from sparkrelay.devkafka import KAFKA_VERSION
from sparkrelay.devkafka.detached import find_broker, start_broker, stop_broker
from sparkrelay.errors import ConfigException

__all__ = ["broker"]

NOT_RUNNING = 3  # as `systemctl status` and the LSB have it

broker = App(
    name="broker",
    help=f"Run an Apache Kafka {KAFKA_VERSION} for development: one node, loopback only, no security.",
)


@broker.command
def start(
    *,
    port: Annotated[int | None, Parameter(help="Port to listen on (a free one).")] = None,
    data: Annotated[Path | None, Parameter(help="Folder for the data, kept at the end (a temporary one).")] = None,
) -> int:
    """Start the broker, print its address when it answers, and leave it running.

    Finding it running already is no error, unless another port or data folder is asked for.
    """
    outcome = start_broker(port=port, data_dir=data)
    if outcome.lost is not None:
        _say(f"The former broker (pid {outcome.lost.pid}) had ended without 'sparkrelay broker stop'.")
    if outcome.was_running:
        _say(f"The broker runs already (pid {outcome.broker.pid}).")
    print(f"bootstrap.servers={outcome.broker.bootstrap_servers}")
    return 0


@broker.command
def stop() -> int:
    """Stop the broker; no broker is no error."""
    found = find_broker()
    was_alive = found is not None and found.alive
    stopped = stop_broker()
    if stopped is None:
        _say("No broker runs.")
    elif was_alive:
        _say(f"Stopped the broker (pid {stopped.pid}) on {stopped.bootstrap_servers}.")
    else:
        _say(f"The broker (pid {stopped.pid}) had already ended. Its log: {stopped.log_path}")
    return 0


@broker.command
def status() -> int:
    """Tell whether the broker runs.

    Exit codes: 0 it answers, 1 its process is there but it does not answer, 3 it does not run.
    """
    found = find_broker()
    if found is None:
        _say("No broker runs. Start one with 'sparkrelay broker start'.")
        return NOT_RUNNING
    if not found.alive:
        _say(
            f"No broker runs: the last one (pid {found.pid}) ended without 'sparkrelay broker stop'. "
            f"Its log: {found.log_path}"
        )
        return NOT_RUNNING
    healthy = found.answers()
    print(f"bootstrap.servers={found.bootstrap_servers}")
    print(f"pid={found.pid}")
    print(f"data={found.data_dir}{' (temporary)' if found.temporary else ''}")
    print(f"log={found.log_path}")
    if not healthy:
        _say(f"The broker (pid {found.pid}) is there but does not answer.")
        return 1
    return 0


@broker.command(name="create-topic")
def create_topic(
    name: str,
    *,
    partitions: Annotated[int, Parameter(help="How many tasks can share the work.")] = 4,
    bootstrap_servers: Annotated[
        str | None,
        Parameter(
            name=["--bootstrap-servers", "--bootstrap-server"],
            help="HOST:PORT of another Kafka than the one started here.",
        ),
    ] = None,
) -> int:
    """Make a topic. One of that name that is there already is left as it is."""
    if partitions < 1:
        raise ConfigException(f"--partitions {partitions}: a topic has at least one partition")
    if bootstrap_servers is None:
        found = find_broker()
        if found is None or not found.alive:
            _say("No broker runs. Start one with 'sparkrelay broker start', or name another by --bootstrap-servers.")
            return NOT_RUNNING
        bootstrap_servers = found.bootstrap_servers
    # Late, because the client takes a moment to import, and starting a broker does not need it.
    from sparkrelay.devkafka import topics  # noqa: PLC0415

    made = topics.create_topic(bootstrap_servers, name, partitions=partitions, exist_ok=True)
    if made:
        print(f"{name}: made, partitions: {partitions}")
    else:
        there = len(topics.describe_topic(bootstrap_servers, name).partitions)
        print(f"{name}: was there already, partitions: {there}")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)
