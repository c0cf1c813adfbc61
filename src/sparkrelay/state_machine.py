"""A state that changes only as its table allows, and that remembers what happened to it.

Every state machine of ours that is drawn in a docstring or in the docs is one of these, so that the drawing is checked
each time it runs: a change that nobody thought of ends in an error that says how it came about, not in a wrong result.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from sparkrelay.errors import IllegalTransitionException

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["StateMachine"]

S = TypeVar("S", bound=enum.Enum | str)

_REMEMBERED: Final = 20


class StateMachine(Generic[S]):
    """One thread at a time changes the state; any thread may read it and note events.

    Args:
        name: what the state is of, for errors.
        initial: where it begins.
        following: for each state, those that may come after it.
    """

    __slots__ = ("_following", "_history", "_name", "_state")

    def __init__(self, name: str, initial: S, following: Mapping[S, Collection[S]]) -> None:
        self._name = name
        self._state = initial
        self._following = following
        self._history: deque[str] = deque(maxlen=_REMEMBERED)

    @property
    def state(self) -> S:
        """The state now."""
        return self._state

    @property
    def history(self) -> tuple[str, ...]:
        """The last 20 events, oldest first."""
        return tuple(self._history)

    def move(self, state: S, event: str) -> None:
        """Change the state.

        Raises:
            IllegalTransitionException: the table has no way there; nothing is changed.
        """
        if state not in self._following[self._state]:
            raise self.refusal(f"{event} (to {_name(state)})")
        self._history.append(f"{event}: {_name(self._state)} -> {_name(state)}")
        self._state = state

    def note(self, event: str) -> None:
        """Remember an event that changes no state."""
        self._history.append(f"{event} in {_name(self._state)}")

    def refusal(self, event: str) -> IllegalTransitionException:
        """Return the error that says that an event must not come now, and what came before it."""
        before = "; ".join(self._history) or "nothing"
        return IllegalTransitionException(
            f"{self._name}: {event} must not come in state {_name(self._state)}. This is a fault of SparkRelay; please "
            f"report it with what happened before, oldest first: {before}"
        )


def _name(state: enum.Enum | str) -> str:
    return state if isinstance(state, str) else state.name
