"""From ``task.assignor.class`` to an assignor: a class, or an import path."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sparkrelay.assignment.high_availability import HighAvailabilityTaskAssignor
from sparkrelay.assignment.task_assignor import TaskAssignor
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["load_assignor"]

_KEY = "task.assignor.class"


def load_assignor(setting: str | type[TaskAssignor] | None, configs: Mapping[str, Any]) -> TaskAssignor:
    """Return a configured assignor.

    Args:
        setting: ``package.module:Class``, ``package.module.Class`` or the class itself; None or "" is the default,
            the high-availability assignor.
        configs: The application's settings, handed to its ``configure``.

    Raises:
        ConfigException: it cannot be imported, is no TaskAssignor, or cannot be made without arguments.
    """
    found: Any = _import(setting) if isinstance(setting, str) and setting else setting or HighAvailabilityTaskAssignor
    if not (isinstance(found, type) and issubclass(found, TaskAssignor)):
        raise ConfigException(
            f"{_KEY}={setting!r} is {found!r}; it must be a subclass of sparkrelay.assignment.TaskAssignor"
        )
    try:
        assignor = found()
        assignor.configure(configs)
    except Exception as error:
        raise ConfigException(f"{_KEY}={setting!r} cannot be made: {type(error).__name__}: {error}") from error
    return assignor


def _import(path: str) -> object:
    module, separator, name = path.partition(":")
    if not separator:
        module, _dot, name = path.rpartition(".")
    if not (module and name):
        raise ConfigException(f"{_KEY}={path!r} is no import path; write package.module:Class")
    try:
        found: object = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # importing runs user code, which may raise anything
        raise ConfigException(f"{_KEY}={path!r} cannot be imported: {type(error).__name__}: {error}") from error
    return found
