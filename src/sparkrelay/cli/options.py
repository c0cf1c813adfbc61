"""Options that several commands share, and the connection to a cluster.

``--command-config FILE`` has client settings for a cluster with TLS or a login.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from cyclopts import Parameter

from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparkrelay.client.kafka_client import KafkaClient

ApplicationId: TypeAlias = Annotated[str, Parameter(help="The application.id of the application.")]
BootstrapServers: TypeAlias = Annotated[str, Parameter(help="HOST:PORT of its Kafka.")]
CommandConfig: TypeAlias = Annotated[
    Path | None, Parameter(help="A file of client settings, one key=value a line: security.protocol, ...")
]
# In nested commands, cyclopts' generated documentation ignores the app's default for ``negative``.
Execute: TypeAlias = Annotated[bool, Parameter(negative=(), help="Do it. Without this, it is only shown.")]
AssignorSettings: TypeAlias = Annotated[
    list[str] | None,
    Parameter(
        name="--assignor-setting",
        help="KEY=VALUE for the assignor, such as task.assignor.elasticsearch.balance.index=0.3; repeatable.",
    ),
]
AsJson: TypeAlias = Annotated[bool, Parameter(name="--json", help="Print JSON.")]
#: The last line of a command that has only shown what it would do.
NOTHING_CHANGED: Final = "nothing was changed; add --execute to do it"
_BOOTSTRAP_S: Final = 15.0


def key_values(option: str, words: Iterable[str] | None, *, example: str, prefix: str = "") -> dict[str, str]:
    """Parse repeated KEY=VALUE words of an option.

    Raises:
        ConfigException: a word is malformed, or its key lacks the prefix.
    """
    found = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not (key.startswith(prefix) and key and equals):
            begins = f" with a KEY that begins with {prefix}" if prefix else ""
            raise ConfigException(f"{option} {word}: give KEY=VALUE{begins}, such as {example}")
        found[key] = value
    return found


def assignor_settings(words: list[str] | None) -> dict[str, str]:
    """Parse ``--assignor-setting``."""
    example = "task.assignor.elasticsearch.balance.index=0.3"
    return key_values("--assignor-setting", words, example=example, prefix="task.assignor.")


def names(text: str | None) -> tuple[str, ...]:
    """Parse ``A,B,...``."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def import_from_current_folder() -> None:
    """Let assignors be imported from the current folder, where an installed command does not look."""
    if "" not in sys.path:
        sys.path.append("")


def read_properties(file: Path | None) -> dict[str, str]:
    """Read a file of ``key=value`` lines in the format of Kafka's tools; ``#`` begins a comment line.

    Raises:
        ConfigException: it cannot be read, or a line is malformed.
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


def client_settings(bootstrap_servers: str, command_config: Path | None) -> dict[str, str]:
    """Return a client's settings: those of the file, with the given bootstrap servers."""
    return {**read_properties(command_config), "bootstrap.servers": bootstrap_servers}


@contextmanager
def connected(bootstrap_servers: str, command_config: Path | None) -> Iterator[KafkaClient]:
    """Connect to a cluster.

    Raises:
        ConfigException: the file cannot be read, or a setting is wrong.
        KafkaException: the cluster does not answer, or refuses the login.
    """
    from sparkrelay.client.config import ClientConfig  # noqa: PLC0415 - `--help` does not need it
    from sparkrelay.client.kafka_client import KafkaClient  # noqa: PLC0415

    with KafkaClient(ClientConfig.from_dict(client_settings(bootstrap_servers, command_config))) as client:
        client.bootstrap(_BOOTSTRAP_S)
        yield client
