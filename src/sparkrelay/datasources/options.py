"""The options of a data source; unknown ones are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.errors import ConfigException
from sparkrelay.settings import nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class Options:
    """Options by name in lower case, as Spark passes them; those of the Kafka client begin with ``kafka.``.

    Messages name the data source, ``what``, and ``of_path``, the option that ``load("name")`` should have been.

    Raises:
        ConfigException: an option is unknown.
    """

    def __init__(self, options: Mapping[str, str], what: str, known: Collection[str], *, of_path: str) -> None:
        self._options = {key.lower(): value for key, value in options.items()}
        self._what = what
        lower = {name.lower() for name in known}
        if "path" in self._options:
            path = self._options["path"]
            raise ConfigException(
                f'{what} has no path: instead of load("{path}") write option("{of_path}", "{path}").load()'
            )
        for key in self._options:
            if key not in lower and not key.startswith("kafka."):
                raise ConfigException(f"{what} has no option {key!r}{nearest(key, known)}")

    def get(self, name: str, otherwise: str) -> str:
        """Return an option, or a default."""
        return self._options.get(name.lower(), otherwise)

    def optional(self, name: str) -> str | None:
        """Return an option; None if it is not set."""
        return self._options.get(name.lower())

    def required(self, name: str) -> str:
        """Return an option; raises ConfigException if it is not set."""
        if name.lower() not in self._options:
            raise ConfigException(f'{self._what} needs option("{name}", ...)')
        return self._options[name.lower()]

    def refuse(self, names: Collection[str], why: str) -> None:
        """Raise ConfigException if an option is set that would have no effect; ``prefix.`` stands for all such."""
        for key in self._options:
            for name in map(str.lower, names):
                if key == name or (name.endswith(".") and key.startswith(name)):
                    raise ConfigException(f"{self._what}: option {key!r} has no effect here: {why}")
