"""``sparkrelay broker``: the development Kafka."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from sparkrelay.devkafka import KAFKA_VERSION
from sparkrelay.devkafka.detached import DEFAULT_NAME, broker_command, find_broker, start_broker, stop_broker
from sparkrelay.errors import ConfigException

__all__ = ["broker"]

NOT_RUNNING = 3  # as `systemctl status` and the LSB have it

broker = App(
    name="broker",
    help=f"Run an Apache Kafka {KAFKA_VERSION} for development: one node, loopback only, no security.",
)


Name = Annotated[str, Parameter(help="Which of your brokers: those of different names run side by side.")]


@broker.command
def start(
    *,
    name: Name = DEFAULT_NAME,
    port: Annotated[int | None, Parameter(help="Port to listen on (a free one).")] = None,
    data: Annotated[Path | None, Parameter(help="Folder for the data, kept at the end (a temporary one).")] = None,
) -> int:
    """Start the broker, print its address when it answers, and leave it running.

    Finding it running already is no error, unless another port or data folder is asked for.
    """
    outcome = start_broker(port=port, data_dir=data, name=name)
    if outcome.lost is not None:
        _say(f"The former broker (pid {outcome.lost.pid}) had ended without '{broker_command('stop', name)}'.")
    if outcome.was_running:
        _say(f"The broker runs already (pid {outcome.broker.pid}).")
    print(f"bootstrap.servers={outcome.broker.bootstrap_servers}")
    return 0


@broker.command
def stop(*, name: Name = DEFAULT_NAME) -> int:
    """Stop the broker; no broker is no error."""
    found = find_broker(name)
    was_alive = found is not None and found.alive
    stopped = stop_broker(name)
    if stopped is None:
        _say("No broker runs.")
    elif was_alive:
        _say(f"Stopped the broker (pid {stopped.pid}) on {stopped.bootstrap_servers}.")
    else:
        _say(f"The broker (pid {stopped.pid}) had already ended. Its log: {stopped.log_path}")
    return 0


@broker.command
def status(*, name: Name = DEFAULT_NAME) -> int:
    """Return whether the broker runs.

    Exit codes: 0 it answers, 1 its process is there but it does not answer, 3 it does not run.
    """
    found = find_broker(name)
    if found is None:
        _say(f"No broker runs. Start one with '{broker_command('start', name)}'.")
        return NOT_RUNNING
    if not found.alive:
        _say(
            f"No broker runs: the last one (pid {found.pid}) ended without '{broker_command('stop', name)}'. "
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
    topic: str,
    /,
    *,
    partitions: Annotated[int, Parameter(help="How many tasks can share the work.")] = 4,
    config: Annotated[
        tuple[str, ...],
        Parameter(
            name="--config", negative="", help="KEY=VALUE of the topic, such as cleanup.policy=compact; several."
        ),
    ] = (),
    broker_name: Annotated[str, Parameter(name="--broker", help="The --name that the broker was started with.")] = (
        DEFAULT_NAME
    ),
    bootstrap_servers: Annotated[
        str | None, Parameter(help="HOST:PORT of another Kafka than the one started here.")
    ] = None,
) -> int:
    """Make a topic that keeps its records for ever. One of that name that is there already is left as it is."""
    if partitions < 1:
        raise ConfigException(f"--partitions {partitions}: a topic has at least one partition")
    # A result has the time of its events, and records of last year would be deleted at once by the default of a week.
    settings = {"retention.ms": "-1"}
    for word in config:
        key, equals, value = word.partition("=")
        if not (key and equals):
            raise ConfigException(f"--config {word}: give KEY=VALUE, such as cleanup.policy=compact")
        settings[key] = value
    if bootstrap_servers is None:
        found = find_broker(broker_name)
        if found is None or not found.alive:
            _say(
                f"No broker runs. Start one with '{broker_command('start', broker_name)}', or name another by "
                "--bootstrap-servers."
            )
            return NOT_RUNNING
        bootstrap_servers = found.bootstrap_servers
    # Late, because the client takes a moment to import, and starting a broker does not need it.
    from sparkrelay.devkafka import topics  # noqa: PLC0415

    made = topics.create_topic(bootstrap_servers, topic, partitions=partitions, config=settings, exist_ok=True)
    if made:
        print(f"{topic}: made, partitions: {partitions}")
    else:
        there = len(topics.describe_topic(bootstrap_servers, topic).partitions)
        print(f"{topic}: was there already, partitions: {there}")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)
