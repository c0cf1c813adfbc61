"""The options of a data source: those that it knows, and none that it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.errors import ConfigException
from sparkrelay.settings import nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["Options"]


class Options:
    """Options by their names in lower case, as Spark passes them on; those of Kafka's client begin with ``kafka.``.

    Args:
        options: as Spark passes them on.
        what: the data source, for messages.
        known: the options that it has.
        of_path: the option that somebody means who writes ``load("name")``.

    Raises:
        ConfigException: one is unknown.
    """

    def __init__(self, options: Mapping[str, str], what: str, known: Collection[str], *, of_path: str) -> None:
        self._options = {key.lower(): value for key, value in options.items()}
        self._what = what
        lower = {name.lower() for name in known}
        if "path" in self._options:
            path = self._options["path"]
            raise ConfigException(
                f'{what} has no path: in place of load("{path}") write option("{of_path}", "{path}").load()'
            )
        for key in self._options:
            if key not in lower and not key.startswith("kafka."):
                raise ConfigException(f"{what} has no option {key!r}{nearest(key, known)}")

    def get(self, name: str, otherwise: str) -> str:
        """Return an option."""
        return self._options.get(name.lower(), otherwise)

    def optional(self, name: str) -> str | None:
        """Return an option; None if it is not there."""
        return self._options.get(name.lower())

    def required(self, name: str) -> str:
        """Return an option that must be there.

        Raises:
            ConfigException: it is not.
        """
        if name.lower() not in self._options:
            raise ConfigException(f'{self._what} needs option("{name}", ...)')
        return self._options[name.lower()]

    def refuse(self, names: Collection[str], why: str) -> None:
        """Refuse options that would have no effect; one that ends with a dot stands for all that begin so.

        Raises:
            ConfigException: one is there.
        """
        for key in self._options:
            for name in map(str.lower, names):
                if key == name or (name.endswith(".") and key.startswith(name)):
                    raise ConfigException(f"{self._what}: option {key!r} has no effect here: {why}")
