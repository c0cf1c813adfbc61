"""The broker's settings: one node, loopback only, quick to start."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkrelay.devkafka.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

NODE_ID = 1
#: Characters with a meaning in a properties file, and characters that are written as UTF-16 code units.
_SPECIAL = re.compile(r"[\\ #!=:]")
_OTHER = re.compile(r"[^ -~]")

# One node cannot replicate; with few internal partitions the first group and the first transaction are quick.
_SINGLE_NODE = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
}
_QUICK = {
    # The first member of a group does not wait three seconds for others.
    "group.initial.rebalance.delay.ms": "0",
    # Tests of expiry ask for short timeouts.
    "group.min.session.timeout.ms": "1000",
    # After a SIGKILL the controller refuses the new incarnation until the old session has expired: 9 s by default. With
    # much less, a busy machine fences a living broker.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
}
_SMALL = {
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "num.recovery.threads.per.data.dir": "2",
    # 128 MB by default, allocated at once.
    "log.cleaner.dedupe.buffer.size": "16777216",
}
_STRICT = {
    # A misspelt topic is an error, not a new topic.
    "auto.create.topics.enable": "false",
    "delete.topic.enable": "true",
}


@dataclass(frozen=True, slots=True)
class Listener:
    """A further listener of the broker on the loopback interface.

    Attributes:
        name: in capital letters; ``server_properties`` may have ``listener.name.<lower-case name>.*``.
        port: where it listens.
        protocol: ``PLAINTEXT``, ``SSL``, ``SASL_PLAINTEXT`` or ``SASL_SSL``.
        host: the advertised host name.
        advertised_port: the advertised port, such as a proxy's; None for ``port``.
    """

    name: str
    port: int
    protocol: str = "PLAINTEXT"
    host: str = LOOPBACK
    advertised_port: int | None = None


def server_settings(
    *,
    port: int,
    controller_port: int,
    log_dirs: Path,
    overrides: Mapping[str, str],
    listeners: Sequence[Listener] = (),
) -> dict[str, str]:
    """Return the broker's complete configuration; ``overrides`` win."""
    more = "".join(f",{one.name}://{LOOPBACK}:{one.port}" for one in listeners)
    others = "".join(f",{one.name}://{one.host}:{one.advertised_port or one.port}" for one in listeners)
    protocols = "".join(f",{one.name}:{one.protocol}" for one in listeners)
    return {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}{more}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}{others}",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        # A static quorum stores no port on disk, so the data may be served on another one.
        "controller.quorum.voters": f"{NODE_ID}@{LOOPBACK}:{controller_port}",
        "log.dirs": str(log_dirs),
        **_SINGLE_NODE,
        **_QUICK,
        **_SMALL,
        **_STRICT,
        **overrides,
    }


def render(settings: Mapping[str, str]) -> str:
    """Return the settings as a Java properties file."""
    return "".join(f"{_escape(key)}={_escape(value)}\n" for key, value in settings.items())


def _escape(text: str) -> str:
    return _OTHER.sub(_code_units, _SPECIAL.sub(r"\\\g<0>", text))


def _code_units(found: re.Match[str]) -> str:
    return "".join(f"\\u{unit}" for unit in found[0].encode("utf-16-be").hex(" ", 2).split())
