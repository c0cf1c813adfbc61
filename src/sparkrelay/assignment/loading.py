"""Loading of the assignor named by ``task.assignor.class``, and its own settings."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.assignment.high_availability import HighAvailabilityTaskAssignor
from sparkrelay.assignment.sticky import FallbackPriorTaskAssignor, StickyTaskAssignor
from sparkrelay.assignment.task_assignor import TaskAssignor
from sparkrelay.errors import ConfigException
from sparkrelay.settings import nearest, shortly, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEY = "task.assignor.class"
_PREFIX = "task.assignor."
_JAVA: Final = "org.apache.kafka.streams.processor"
#: Kafka Streams' assignors by their Java names.
_JAVA_NAMES: Final[Mapping[str, type[TaskAssignor]]] = {
    f"{_JAVA}.assignment.assignors.StickyTaskAssignor": StickyTaskAssignor,
    f"{_JAVA}.internals.assignment.HighAvailabilityTaskAssignor": HighAvailabilityTaskAssignor,
    f"{_JAVA}.internals.assignment.FallbackPriorTaskAssignor": FallbackPriorTaskAssignor,
}
_MOST: Final = 1_000_000
#: No exponent and few digits: computing with a million digits would take hours.
_NUMBER: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


def load_assignor(setting: str | type[TaskAssignor] | None, configs: Mapping[str, Any]) -> TaskAssignor:
    """Return a configured assignor.

    Args:
        setting: ``package.module:Class``, ``package.module.Class``, ``path/to/file.py:Class``, the class itself, or a
            Java name of Kafka Streams; None or "" is the high-availability assignor. Relative paths are searched for in
            the current folder and in ``sys.path``.
        configs: The application's settings, passed to its ``configure``.

    Raises:
        ConfigException: it is not found, not a TaskAssignor, or its import or constructor fails.
    """
    found: Any = _import(setting) if isinstance(setting, str) and setting else setting or HighAvailabilityTaskAssignor
    if not (isinstance(found, type) and issubclass(found, TaskAssignor)):
        raise ConfigException(
            f"{_KEY}={setting!r} is {found!r}; it must be a subclass of sparkrelay.assignment.TaskAssignor"
        )
    try:
        assignor = found()
        assignor.configure(configs)
    except (Exception, SystemExit) as error:
        raise ConfigException(f"{_KEY}={setting!r} cannot be created: {type(error).__name__}: {error}") from error
    return assignor


def require_known_settings(assignor: TaskAssignor, configs: Mapping[str, Any]) -> None:
    """Check that an assignor that declares its settings knows all ``task.assignor.*`` settings.

    Raises:
        ConfigException: a setting is unknown.
    """
    # Not inherited: a subclass of one of our assignors may have settings that it does not declare.
    known: frozenset[str] | None = vars(type(assignor)).get("settings")
    if known is None:
        return
    for key, value in configs.items():
        if key.startswith(_PREFIX) and key != _KEY and key not in known:
            raise ConfigException(
                f"{type(assignor).__name__} has no setting {shown(key, value)}{nearest(key, [_KEY, *known])}"
            )


def number_setting(configs: Mapping[str, Any], key: str, default: str, *, least: int) -> Fraction:
    """Return a setting of an assignor as a fraction, so that no rounding decides an assignment.

    Raises:
        ConfigException: it is not a number, below ``least`` or too large.
    """
    value = configs.get(key, default)
    text = str(value)  # of a float the shortest: 0.45 is 9/20
    if not _NUMBER.fullmatch(text) or not least <= (found := Fraction(text)) <= _MOST:
        raise ConfigException(f"{key}={shortly(value)} must be a number from {least} to {_MOST}, such as {default}")
    return found


def _import(path: str) -> object:
    if path in _JAVA_NAMES:
        return _JAVA_NAMES[path]
    if path.startswith("org.apache.kafka."):
        raise ConfigException(
            f"{_KEY}={path!r} is a Java class. Supported are {', '.join(_JAVA_NAMES)}; write others in Python: "
            "docs/assignors.md"
        )
    if path.endswith(".py"):
        raise ConfigException(f"{_KEY}={path!r} names a file without a class; write {path}:Class")
    # By the last colon: paths may contain others.
    module, separator, name = path.rpartition(":")
    if not separator:
        module, _dot, name = path.rpartition(".")
    if not (module and name):
        raise ConfigException(f"{_KEY}={path!r} is not an import path; write package.module:Class or file.py:Class")
    file = _find(path, module) if module.endswith(".py") else None
    try:
        found: object = importlib.import_module(module) if file is None else _run(file)  # noqa: TID251
        for part in name.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        raise ConfigException(
            f"{_KEY}={path!r} cannot be imported: {type(error).__name__}: {error}; install it, put its folder on "
            f"PYTHONPATH, or name the file: ./file.py:Class"
        ) from error
    except (Exception, SystemExit) as error:  # user code may raise anything, and scripts exit
        raise ConfigException(f"{_KEY}={path!r} cannot be imported: {type(error).__name__}: {error}") from error
    return found


def _find(setting: str, name: str) -> Path:
    for folder in (Path(), *map(Path, sys.path)):
        if (file := folder / name).is_file():
            return file.resolve()
    raise ConfigException(
        f"{_KEY}={setting!r}: no file {name} in {Path.cwd()} or in a folder of sys.path; "
        "give its path, or an import path such as package.module:Class"
    )


def _run(file: Path) -> object:
    """Run a file as a module, each time, so that edits take effect."""
    # The path is the name: a file random.py must not hide the real module.
    spec = importlib.util.spec_from_file_location(str(file), file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)  # noqa: TID251 - a file that the user names
    before = sys.modules.get(spec.name)
    sys.modules[spec.name] = module  # dataclasses and pickle look their module up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if before is None:
            del sys.modules[spec.name]
        else:
            sys.modules[spec.name] = before
        raise
    return module
