"""Removing a task's state, and setting aside one that cannot be used."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import StateStoreException
from sparkrelay.state.space import DATA_FILE

if TYPE_CHECKING:
    from pathlib import Path

#: States set aside that are kept per task.
_ASIDE: Final = 2


def wipe(path: Path) -> None:
    """Remove a task's state, as before a rebuild. Processes that have it open can no longer use it.

    Raises:
        StateStoreException: it cannot be removed.
    """
    # The data goes first: without it, the rest does not count as state.
    try:
        (path / DATA_FILE).unlink(missing_ok=True)
    except OSError as error:
        raise StateStoreException(
            f"the state in {path} cannot be removed ({error.strerror}); remove it by hand"
        ) from error
    shutil.rmtree(path, ignore_errors=True)


def set_aside(path: Path) -> Path | None:
    """Rename an unusable state, for inspection; return its new path, None if there is no state.

    Only the newest few of a task are kept, lest a failing disk fill up; they are cleaned up later, as those of tasks
    that moved away.

    Raises:
        StateStoreException: it cannot be renamed.
    """
    aside = f"{path.name}.corrupt-"
    try:
        known = sorted(
            (entry for entry in path.parent.glob(f"{aside}*") if entry.name.removeprefix(aside).isdecimal()),
            key=lambda entry: int(entry.name.removeprefix(aside)),
        )
        number = int(known[-1].name.removeprefix(aside)) + 1 if known else 1
        target = path.with_name(f"{aside}{number}")
        # Its age counts from now, which may be long after it was last written.
        os.utime(path)
        path.rename(target)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateStoreException(
            f"the state in {path} cannot be set aside ({error.strerror}); remove it by hand"
        ) from error
    for old in known[: 1 - _ASIDE]:
        shutil.rmtree(old, ignore_errors=True)
    return target
