"""Checks of an application before it is changed: its id, and that no instance runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.config import check_application_id
from sparkrelay.errors import ConfigException, StreamsException

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.client.admin import Admin


def require_application_id(value: str) -> None:
    """Raise ConfigException if an ``application.id`` is not valid."""
    try:
        check_application_id(value)
    except ValueError as error:
        raise ConfigException(f"application.id {value!r}: {error}") from None


def members_of(admin: Admin, application_id: str) -> tuple[str, ...]:
    """Return member id and host of each member of an application; raises StreamsException for other groups."""
    group = admin.describe_group(application_id)
    if group.protocol_type not in {"", "consumer"}:
        raise StreamsException(f"group {group.group_id!r} is a group of {group.protocol_type!r}, not of an application")
    return tuple(f"{member.member_id} on {member.host.lstrip('/')}" for member in group.members)


def require_stopped(application_id: str, members: Sequence[str]) -> None:
    """Raise StreamsException if an application's group has members."""
    if members:
        raise StreamsException(
            f"application {application_id!r} is running; its group has members: "
            f"{', '.join(members[:5])}{', ...' if len(members) > 5 else ''}. Stop every instance first; "
            "a killed one leaves the group after its session.timeout.ms"
        )
