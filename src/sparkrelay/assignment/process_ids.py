"""Process ids for operators: abbreviated, or of instances that do not exist yet."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from sparkrelay.errors import ConfigException
from sparkrelay.types import ProcessId

if TYPE_CHECKING:
    from collections.abc import Collection

    from sparkrelay.assignment.application_state import ApplicationState

_LARGEST_POSITION = 1 << 127


def new_process_ids(present: Collection[ProcessId], count: int, *, place: int | None = None) -> list[ProcessId]:
    """Return ids for instances that do not exist yet; they sort together.

    A new instance's id is random, and assignors deal tasks in the order of ids, so its place decides which tasks move.

    Args:
        present: Existing ids.
        count: The number of new ids.
        place: How many existing ids sort before the new ones; all by default.
    """
    order = [-_LARGEST_POSITION, *map(_position, sorted(present)), _LARGEST_POSITION]
    before = order[:-1][-1 if place is None else place]
    step = (order[order.index(before) + 1] - before) // (count + 1)
    return [_at(before + step * number) for number in range(1, count + 1)]


def find_process(state: ApplicationState, text: str) -> ProcessId:
    """Find a process by a prefix of its id or of a consumer's.

    Raises:
        ConfigException: no process matches, or several do.
    """
    wanted = text.lower()
    found = {
        process
        for process, client in state.clients.items()
        if str(process).startswith(wanted)
        or any(name.lower().startswith(wanted) for name in client.consumer_client_ids)
    }
    if text and len(found) == 1:
        return found.pop()
    names = ", ".join(sorted(map(str, found if text and found else state.clients)))
    if text and found:
        raise ConfigException(f"{text!r} matches several processes: {names}; give more of the id")
    raise ConfigException(f"no process matches {text!r}; the group has {names}")


def _position(process: ProcessId) -> int:
    """Return an integer that sorts like processes: both halves of the id are signed (``ProcessId``)."""
    return (process.id.int ^ (1 << 127) ^ (1 << 63)) - _LARGEST_POSITION


def _at(position: int) -> ProcessId:
    return ProcessId(uuid.UUID(int=(position + _LARGEST_POSITION) ^ (1 << 127) ^ (1 << 63)))
