"""The options of commands that speak to a cluster, and how they connect.

``--command-config FILE`` has client settings for a cluster with TLS or a login.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from cyclopts import Parameter

from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkrelay.client.kafka_client import KafkaClient

__all__ = ["NOTHING_CHANGED", "BootstrapServers", "CommandConfig", "Execute", "connected", "read_properties"]

BootstrapServers: TypeAlias = Annotated[str, Parameter(help="HOST:PORT of its Kafka.")]
Execute: TypeAlias = Annotated[bool, Parameter(negative="", help="Do it. Without this, it is only shown.")]
#: The last line of a command that has only shown what it would do.
NOTHING_CHANGED: Final = "nothing was changed; add --execute to do it"
_BOOTSTRAP_S: Final = 15.0

CommandConfig: TypeAlias = Annotated[
    Path | None, Parameter(help="A file of client settings, key=value a line: security.protocol, ...")
]


def read_properties(file: Path | None) -> dict[str, str]:
    """Read a file of ``key=value`` lines, as Kafka's tools take them; ``#`` begins a comment line.

    Raises:
        ConfigException: it cannot be read, or a line is no setting.
    """
    if file is None:
        return {}
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigException(f"--command-config {file} cannot be read: {error}") from error
    settings = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", "!")):
            continue
        key, separator, value = stripped.partition("=")
        if not separator or not key.strip():
            raise ConfigException(f"--command-config {file}, line {number}: write key=value")
        settings[key.strip()] = value.strip()
    return settings


@contextmanager
def connected(bootstrap_servers: str, command_config: Path | None) -> Iterator[KafkaClient]:
    """Connect to a cluster.

    Raises:
        ConfigException: the file of settings cannot be read, or a setting is wrong.
        KafkaException: the cluster does not answer, or refuses the login.
    """
    from sparkrelay.client.config import ClientConfig  # noqa: PLC0415 - `--help` needs none of it
    from sparkrelay.client.kafka_client import KafkaClient  # noqa: PLC0415

    settings = {**read_properties(command_config), "bootstrap.servers": bootstrap_servers}
    with KafkaClient(ClientConfig.from_dict(settings)) as client:
        client.bootstrap(_BOOTSTRAP_S)
        yield client
