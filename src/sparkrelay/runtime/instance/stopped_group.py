"""The group of an application that is to be changed while no instance runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparkrelay.client.admin import Admin
from sparkrelay.client.application_admin import ApplicationAdmin
from sparkrelay.config import check_application_id
from sparkrelay.errors import ConfigException, StreamsException
from sparkrelay.runtime.topics.topic_names import TopicNames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.client.kafka_client import KafkaClient
    from sparkrelay.types import TopicPartition

TIMEOUT_S: Final = 60.0


class StoppedGroup:
    """An application's group, as commands look at it and change it; used on the thread of its (bootstrapped) client."""

    def __init__(self, client: KafkaClient, application_id: str, *, timeout: float = TIMEOUT_S) -> None:
        """Raise ConfigException if the id is not valid."""
        require_application_id(application_id)
        self._id = application_id
        self._names = TopicNames(application_id)
        self._admin = Admin(client, timeout=timeout)
        self._application = ApplicationAdmin(client, application_id, timeout=timeout)

    def _members(self) -> tuple[str, ...]:
        """Return member id and host of each member; raises StreamsException if the group is not an application's."""
        group = self._admin.describe_group(self._id)
        if group.protocol_type not in {"", "consumer"}:
            raise StreamsException(f"group {self._id!r} is a group of {group.protocol_type!r}, not of an application")
        return tuple(f"{member.member_id} on {member.host.lstrip('/')}" for member in group.members)

    def _committed(self) -> dict[TopicPartition, int]:
        """Return the group's offsets, without that of a reset's marker."""
        marker = self._names.reset_marker
        return {at: offset for at, offset in self._application.offsets().items() if at.topic != marker}


def require_application_id(value: str) -> None:
    """Raise ConfigException if an ``application.id`` is not valid."""
    try:
        check_application_id(value)
    except ValueError as error:
        raise ConfigException(f"application.id {value!r}: {error}") from None


def require_stopped(application_id: str, members: Sequence[str]) -> None:
    """Raise StreamsException if an application's group has members."""
    if members:
        raise StreamsException(
            f"application {application_id!r} is running; its group has members: "
            f"{', '.join(members[:5])}{', ...' if len(members) > 5 else ''}. Stop every instance first; "
            "a killed one leaves the group after its session.timeout.ms"
        )
