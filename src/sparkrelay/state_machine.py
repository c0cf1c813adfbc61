"""A state machine that allows only the transitions of its table and remembers recent events.

Every state machine drawn in a docstring or in the docs is one of these, so that each run checks the drawing: an
unforeseen transition ends in an error with its history, not in a wrong result.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from sparkrelay.errors import IllegalTransitionException

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

S = TypeVar("S", bound=enum.Enum | str)

_REMEMBERED: Final = 20


class StateMachine(Generic[S]):
    """One thread at a time changes the state; any thread may read it and note events.

    Args:
        name: whose state it is, for errors.
        initial: the first state.
        following: state -> allowed next states.
    """

    __slots__ = ("_following", "_history", "_name", "_state")

    def __init__(self, name: str, initial: S, following: Mapping[S, Collection[S]]) -> None:
        self._name = name
        self._state = initial
        self._following = following
        self._history: deque[str] = deque(maxlen=_REMEMBERED)

    @property
    def state(self) -> S:
        """The current state."""
        return self._state

    @property
    def history(self) -> tuple[str, ...]:
        """The last 20 events, oldest first."""
        return tuple(self._history)

    def move(self, state: S, event: str) -> None:
        """Change the state; raises IllegalTransitionException, without a change, if the table does not allow it."""
        if state not in self._following[self._state]:
            raise self.refusal(f"{event} (to {_name(state)})")
        self._history.append(f"{event}: {_name(self._state)} -> {_name(state)}")
        self._state = state

    def note(self, event: str) -> None:
        """Remember an event without a transition."""
        self._history.append(f"{event} in {_name(self._state)}")

    def refusal(self, event: str) -> IllegalTransitionException:
        """Return the error for an event that is not allowed now, with the previous events."""
        before = "; ".join(self._history) or "nothing"
        return IllegalTransitionException(
            f"{self._name}: {event} is not allowed in state {_name(self._state)}. This is a bug in SparkRelay; please "
            f"report it with the previous events, oldest first: {before}"
        )


def _name(state: enum.Enum | str) -> str:
    return state if isinstance(state, str) else state.name
