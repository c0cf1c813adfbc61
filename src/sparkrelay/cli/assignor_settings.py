"""``--assignor-setting KEY=VALUE`` of the commands that ask an assignor."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from sparkrelay.errors import ConfigException

__all__ = ["AssignorSettings", "read_assignor_settings"]

AssignorSettings = Annotated[
    list[str] | None,
    Parameter(
        name="--assignor-setting",
        negative="",
        help="KEY=VALUE for the assignor, such as task.assignor.elasticsearch.balance.index=0.3; several.",
    ),
]


def read_assignor_settings(words: list[str] | None) -> dict[str, str]:
    """Return the settings by key.

    Raises:
        ConfigException: a word is none.
    """
    found = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not (key.startswith("task.assignor.") and equals):
            raise ConfigException(f"--assignor-setting {word}: give KEY=VALUE, of which KEY begins with task.assignor.")
        found[key] = value
    return found
