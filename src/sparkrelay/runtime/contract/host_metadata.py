"""Host, rack and tags of a process, read on the executor or on the driver.

One configuration serves all executors of an application, but they run on different hosts. So the host is a tag by
itself, and other differences come from the machine's environment: ``spark-env.sh`` of Spark's standalone workers, or
the environment of YARN's node managers or Kubernetes' pods.
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

HOST_TAG: Final = "host"
_RACK: Final = "SPARKRELAY_CLIENT_RACK"
_TAG: Final = "SPARKRELAY_CLIENT_TAG_"
#: KIP-708's limit for values. Longer names are truncated, and made unique by a digest.
_LONGEST_HOST, _DIGEST = 30, 8


@dataclass(frozen=True, slots=True)
class HostMetadata:
    """Host, rack and tags (by lower-case key) of a process."""

    host: str
    rack: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def here(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Return the metadata of this Python process: an executor's worker, or the driver."""
        values = os.environ if environment is None else environment
        tags = {key.removeprefix(_TAG).lower(): text for key, text in values.items() if key.startswith(_TAG) and text}
        return cls(socket.gethostname(), values.get(_RACK, ""), tags)

    def applied_to(self, config: StreamsConfig) -> StreamsConfig:
        """Return the settings of a process with this metadata.

        The environment overrides the configuration, which does not know the machine. The tag ``host`` is set unless it
        exists already or there are five tags (KIP-708's limit).

        Raises:
            ConfigException: a variable is not a valid tag, or ``rack.aware.assignment.tags`` names a tag that is not
                set.
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
