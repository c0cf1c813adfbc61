"""``sparkrelay broker``: the development Kafka."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from sparkrelay.cli.options import key_values
from sparkrelay.devkafka import KAFKA_VERSION
from sparkrelay.devkafka.detached import DEFAULT_NAME, broker_command, find_broker, start_broker, stop_broker
from sparkrelay.errors import ConfigException

NOT_RUNNING = 3  # like `systemctl status` and the LSB

broker = App(
    name="broker",
    help=f"Run an Apache Kafka {KAFKA_VERSION} for development: one node, loopback only, no security.",
)

Name = Annotated[str, Parameter(help="Name of the broker: brokers of different names run side by side.")]


@broker.command
def start(
    *,
    name: Name = DEFAULT_NAME,
    port: Annotated[int | None, Parameter(help="Port to listen on (default: a free one).")] = None,
    data: Annotated[Path | None, Parameter(help="Folder for the data, kept at the end (default: temporary).")] = None,
) -> None:
    """Start the broker, print its address once it answers, and leave it running.

    A running broker is no error, unless another port or data folder is requested.
    """
    outcome = start_broker(port=port, data_dir=data, name=name)
    if outcome.lost is not None:
        _say(f"The previous broker (pid {outcome.lost.pid}) had ended without '{broker_command('stop', name)}'.")
    if outcome.was_running:
        _say(f"The broker is running already (pid {outcome.broker.pid}).")
    print(f"bootstrap.servers={outcome.broker.bootstrap_servers}")


@broker.command
def stop(*, name: Name = DEFAULT_NAME) -> None:
    """Stop the broker, if it runs."""
    found = find_broker(name)
    was_alive = found is not None and found.alive
    stopped = stop_broker(name)
    if stopped is None:
        _say("No broker is running.")
    elif was_alive:
        _say(f"Stopped the broker (pid {stopped.pid}) on {stopped.bootstrap_servers}.")
    else:
        _say(f"The broker (pid {stopped.pid}) had already ended. Its log: {stopped.log_path}")


@broker.command
def status(*, name: Name = DEFAULT_NAME) -> int:
    """Report whether the broker runs.

    Exit codes: 0 it answers, 1 its process exists but does not answer, 3 it does not run.
    """
    found = find_broker(name)
    if found is None:
        _say(f"No broker is running. Start one with '{broker_command('start', name)}'.")
        return NOT_RUNNING
    if not found.alive:
        _say(
            f"No broker is running: the last one (pid {found.pid}) ended without '{broker_command('stop', name)}'. "
            f"Its log: {found.log_path}"
        )
        return NOT_RUNNING
    print(f"bootstrap.servers={found.bootstrap_servers}")
    print(f"pid={found.pid}")
    print(f"data={found.data_dir}{' (temporary)' if found.temporary else ''}")
    print(f"log={found.log_path}")
    if not found.answers():
        _say(f"The broker (pid {found.pid}) does not answer.")
        return 1
    return 0


@broker.command(name="create-topic")
def create_topic(
    topic: str,
    /,
    *,
    partitions: Annotated[int, Parameter(help="How many tasks can share the work.")] = 4,
    config: Annotated[
        tuple[str, ...],
        Parameter(
            name="--config", negative=(), help="KEY=VALUE of the topic, such as cleanup.policy=compact; repeatable."
        ),
    ] = (),
    broker_name: Annotated[str, Parameter(name="--broker", help="The --name that the broker was started with.")] = (
        DEFAULT_NAME
    ),
    bootstrap_servers: Annotated[
        str | None, Parameter(help="HOST:PORT of another Kafka than the broker started here.")
    ] = None,
) -> int:
    """Create a topic that keeps its records forever. An existing topic is left unchanged."""
    if partitions < 1:
        raise ConfigException(f"--partitions {partitions}: a topic has at least one partition")
    # Results carry the time of their events: the default of a week would delete records of last year at once.
    settings = {"retention.ms": "-1", **key_values("--config", config, example="cleanup.policy=compact")}
    if bootstrap_servers is None:
        found = find_broker(broker_name)
        if found is None or not found.alive:
            _say(
                f"No broker is running. Start one with '{broker_command('start', broker_name)}', or name another with "
                "--bootstrap-servers."
            )
            return NOT_RUNNING
        bootstrap_servers = found.bootstrap_servers
    # Late, because importing the client takes a moment and starting a broker does not need it.
    from sparkrelay.devkafka import topics  # noqa: PLC0415

    if topics.create_topic(bootstrap_servers, topic, partitions=partitions, config=settings, exist_ok=True):
        print(f"{topic}: created, partitions: {partitions}")
    else:
        there = len(topics.describe_topic(bootstrap_servers, topic).partitions)
        print(f"{topic}: exists already, partitions: {there}")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)
