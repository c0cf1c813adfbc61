"""Where a process lives, as its tags and its rack say: read on the executor itself, or on the driver.

One configuration serves all executors of an application, but each of them is somewhere else. So the host is a tag of
its own accord, and what else differs from machine to machine comes from the environment of the machine: Spark's
standalone workers have their ``spark-env.sh``, YARN its node managers' and Kubernetes its pods' environment.
"""

from __future__ import annotations

import hashlib
import os
import socket
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Self

from sparkrelay.config import MOST_TAGS, check_client_tags
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.config import StreamsConfig

__all__ = ["HOST_TAG", "HostMetadata"]

HOST_TAG: Final = "host"
_RACK: Final = "SPARKRELAY_CLIENT_RACK"
_TAG: Final = "SPARKRELAY_CLIENT_TAG_"
#: KIP-708's limit for values. A longer name keeps its beginning, and differs from others by its digest.
_LONGEST_HOST, _DIGEST = 30, 8


@dataclass(frozen=True, slots=True)
class HostMetadata:
    """Where a process lives.

    Attributes:
        host: name of its host.
        rack: its rack; empty if the environment names none.
        tags: what else the environment says, by key in small letters.
    """

    host: str
    rack: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def here(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Return where this Python process lives: on an executor its worker, on the driver the application itself."""
        values = os.environ if environment is None else environment
        tags = {key.removeprefix(_TAG).lower(): text for key, text in values.items() if key.startswith(_TAG) and text}
        return cls(socket.gethostname(), values.get(_RACK, ""), tags)

    def applied_to(self, config: StreamsConfig) -> StreamsConfig:
        """Return the settings of a process that lives here.

        The environment wins over the configuration, which does not know the machine. The tag ``host`` is set unless
        something else is called so, or there are five tags already (KIP-708's limit).

        Raises:
            ConfigException: a variable is no valid tag, or ``rack.aware.assignment.tags`` names a tag that is not set.
        """
        tags = {**config.client_tags, **self.tags}
        try:
            check_client_tags(tags)
        except ValueError as error:
            raise ConfigException(f"{error} (tags come from client.tag.* and from {_TAG}* on {self.host})") from None
        if len(tags) < MOST_TAGS:
            tags.setdefault(HOST_TAG, _short(self.host))
        for tag in config.rack_aware_assignment_tags:
            if tag not in tags:
                raise ConfigException(
                    f"rack.aware.assignment.tags names {tag!r}, but the process on {self.host} has no such tag: set "
                    f"client.tag.{tag}, or {_TAG}{tag.upper()} in the environment of that machine"
                )
        return replace(config, client_tags=tags, client_rack=self.rack or config.client_rack)


def _short(host: str) -> str:
    if len(host) <= _LONGEST_HOST:
        return host
    digest = hashlib.sha256(host.encode()).hexdigest()[:_DIGEST]
    return f"{host[: _LONGEST_HOST - _DIGEST - 1]}-{digest}"
