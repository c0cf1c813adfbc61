"""Removing a task's state, and setting one aside that cannot be used."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import StateStoreException
from sparkrelay.state.space import DATA_FILE

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["set_aside", "wipe"]

#: Unusable states of one task that are kept.
_ASIDE: Final = 2


def wipe(path: Path) -> None:
    """Remove a task's state, as before a rebuild. Processes that have it open are refused from now on.

    Raises:
        StateStoreException: it cannot be removed.
    """
    # The data goes first: without it, whatever else is left counts as no state.
    try:
        (path / DATA_FILE).unlink(missing_ok=True)
    except OSError as error:
        raise StateStoreException(
            f"the state in {path} cannot be removed ({error.strerror}); remove it by hand"
        ) from error
    shutil.rmtree(path, ignore_errors=True)


def set_aside(path: Path) -> Path | None:
    """Rename a state that cannot be used, so that it can be looked at; return where to, None if there is none.

    Of one task the newest few are kept: a failing disk must not be filled by what it broke. The directories of
    tasks that moved away are cleaned up later, and these with them.

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
        # Its age is that of its setting aside, which may be long after it was last written.
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
