"""Errors of calls whose arguments do not fit the signature.

Python's own TypeError has no line of the user's program, and names the class that defines a method, such as
``RowSteps.to()``, which no user knows. So the public methods of the pipeline language check their arguments first.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sparkrelay.errors import TopologyException
from sparkrelay.topology.call_site import find_call_site

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ClassT = TypeVar("ClassT", bound=type)

_BY_PLACE: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def public_calls(cls: ClassT) -> ClassT:
    """Make the methods that a class defines raise TopologyException, not TypeError, for arguments that do not fit.

    Inherited methods are checked where they are defined. Messages name the class of the object, or its ``_kind``.
    """
    for name, member in list(vars(cls).items()):
        if inspect.isfunction(member) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, checked_call(member))
    return cls


def checked_call(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that raises TopologyException, not TypeError, for arguments that do not fit."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            signature.bind(self, *args, **kwargs)
        except TypeError:
            kind = getattr(type(self), "_kind", type(self).__name__)
            call = kind if method.__name__ == "__init__" else f"{kind}.{method.__name__}"
            reason = _misfit([*signature.parameters.values()][1:], args, kwargs)
            shown = _shown(call, signature)
            raise TopologyException(f"{find_call_site()}: {call}() {reason}; the call is {shown}") from None
        try:
            return method(self, *args, **kwargs)
        except TopologyException as error:
            # Its message has the user's line; our frames and Spark's trace would hide that one.
            raise error.with_traceback(None) from None

    return checked


def _misfit(parameters: list[inspect.Parameter], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return what is wrong with arguments that do not fit."""
    named = {one.name for one in parameters if one.kind in {one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY}}
    unknown = [name for name in kwargs if name not in named]
    if unknown:
        lower = {name.lower().replace("_", ""): name for name in named}
        near = difflib.get_close_matches(unknown[0].lower().replace("_", ""), lower, n=1)
        hint = f": did you mean {lower[near[0]]}=?" if near else ""
        return f"has no argument {unknown[0]}={kwargs[unknown[0]]!r}{hint}"
    placed = [one for one in parameters if one.kind in _BY_PLACE]
    if len(args) > len(placed):
        hint = ", which needs its name" if any(one.kind is one.KEYWORD_ONLY for one in parameters) else ""
        return f"has one argument too many, {args[len(placed)]!r}{hint}"
    twice = [one.name for one in placed[: len(args)] if one.name in kwargs]
    if twice:
        return f"has its argument {twice[0]!r} twice: by place and as {twice[0]}={kwargs[twice[0]]!r}"
    missing = [
        one.name
        for place, one in enumerate(parameters)
        if one.default is one.empty
        and one.kind not in {one.VAR_POSITIONAL, one.VAR_KEYWORD}
        and one.name not in kwargs
        and not (one in placed and place < len(args))
    ]
    return f"needs its argument {missing[0]!r}"


def _shown(call: str, signature: inspect.Signature) -> str:
    """Return a signature as people write a call: ``to(topic, key=, value=)``."""
    words = []
    for one in [*signature.parameters.values()][1:]:
        if one.kind is one.VAR_POSITIONAL:
            words.append(f"*{one.name}")
        elif one.kind is one.VAR_KEYWORD:
            words.append(f"**{one.name}")
        else:
            needed = one.kind is not one.KEYWORD_ONLY and one.default is one.empty
            words.append(one.name if needed else f"{one.name}=")
    return f"{call.rpartition('.')[2]}({', '.join(words)})"
