"""Keys of a stateful processor's variables and timers in the store.

    timer     due, 00, group              -> the group's key
    expiry    due, 01, group, name, 00, rest  -> nothing
    variable  NEVER, group, name, 00, rest    -> time of expiry, columns
    timers    NEVER, group, 00, due           -> nothing
    tick      due, 02                         -> nothing
    ticks     NEVER, 00, "tick", 00           -> when the next tick is due
    groups    NEVER, 00, "groups", 00, key    -> the group's key

Every key begins with an end, as in every store whose rows expire (``state.window_keys``). A timer ends when it is due,
so due timers come first; variables never end. ``rest`` is the key of a map's entry, or the place of a list's element;
it is empty for a value and for a list's span. Groups and map keys are prefixed by their length, so that none is a
prefix of another, and long ones are replaced by digests (``state.key_parts``): all keys are short and can be scanned.
Of a task that has ticks, the last two are of a group that no rows have: its key is empty.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final

from sparkrelay.state.key_parts import KeyPart
from sparkrelay.state.window_keys import END_BYTES, NEVER, end_bytes, end_of

#: Longest name of a variable, in bytes.
LONGEST_NAME: Final = 100
#: Name of a group's timers; no variable has it.
TIMERS: Final = ""
_SECOND_MS: Final = 1000
_FRONT: Final = end_bytes(NEVER)
_TIMER: Final = b"\x00"
_EXPIRY: Final = b"\x01"
_TICK: Final = b"\x02"
_PLACE: Final = struct.Struct(">Q")
_PART: Final = KeyPart(1, longest=120, digest=lambda key: hashlib.sha256(key).digest(), marked=True)


def part(key: bytes) -> bytes:
    """Return a key in the form that it has inside other keys."""
    return _PART.of(key)


def variable_key(group: bytes, name: str) -> bytes:
    """Return the key of a group's variable; ``group`` is the :func:`part` of its key."""
    return _FRONT + group + name.encode() + b"\x00"


def entry_key(variable: bytes, key: bytes) -> bytes:
    """Return the key of a map's entry."""
    return variable + part(key)


def element_key(variable: bytes, place: int) -> bytes:
    """Return the key of a list's element, or of one of a group's timers."""
    return variable + _PLACE.pack(place)


def place_of(key: bytes) -> int:
    """Return an element's place, or the time of a group's timer."""
    place: int = _PLACE.unpack_from(key, len(key) - _PLACE.size)[0]
    return place


def entries(variable: bytes) -> tuple[bytes, bytes]:
    """Return the range of a map's entries."""
    return variable, variable[:-1] + b"\x01"


def timer_key(due_ms: int, group: bytes) -> bytes:
    """Return the key of a timer."""
    return end_bytes(due_ms) + _TIMER + group


def expiry_key(expires_ms: int, variable: bytes) -> bytes:
    """Return the key that marks the expiry of a variable, entry or element. It is removed within a second of that."""
    return end_bytes(-(-expires_ms // _SECOND_MS) * _SECOND_MS) + _EXPIRY + variable[END_BYTES:]


def tick_key(due_ms: int) -> bytes:
    """Return the key that marks when the task's next tick is due."""
    return end_bytes(due_ms) + _TICK


def is_expiry(key: bytes) -> bool:
    """Return whether a key that begins with an end marks an expiry."""
    return key[END_BYTES : END_BYTES + 1] == _EXPIRY


def of_group(group: bytes) -> tuple[bytes, bytes]:
    """Return the range of everything that a group has; ``group`` is the :func:`part` of its key."""
    return _FRONT + group, _FRONT + group + b"\xff"


def read_due(key: bytes) -> tuple[int, bool]:
    """Return the time of a timer or an expiry, in ms since 1970, and whether it is a timer."""
    return end_of(key), key[END_BYTES : END_BYTES + 1] == _TIMER


def behind_front(key: bytes) -> bytes:
    """Return the group in a timer's key, as a :func:`part`."""
    return key[END_BYTES + 1 :]


def variable_of(expiry: bytes) -> bytes:
    """Return the key of the expired entry."""
    return _FRONT + expiry[END_BYTES + 1 :]


#: Where a task keeps when its next tick is due, and the keys of its groups.
NEXT_TICK: Final = variable_key(part(b""), "tick")
GROUPS: Final = variable_key(part(b""), "groups")
