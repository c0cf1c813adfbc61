"""``--command-config FILE``: client settings for commands that speak to a cluster with TLS or a login."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from sparkrelay.errors import ConfigException

__all__ = ["CommandConfig", "read_properties"]

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
