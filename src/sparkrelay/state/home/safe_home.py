"""The directory of one application in ``state.dir``, checked before anything in it is used.

Another user with write access could swap stores, or make this process overwrite its user's files by links. The home is
closed to others, so after the check only its owner and root can change it.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from sparkrelay.errors import StateStoreException
from sparkrelay.own_files import distrust, make_directory, state_folder, user_name, volume_group


def safe_home(state_dir: Path | str | None, application_id: str, *, make: bool) -> Path:
    """Return ``<state.dir>/<application.id>``, which only this user and root can have written to.

    ``state_dir`` None is the state folder of this process's user. With ``make``, missing directories are created.

    Raises:
        StateStoreException: it cannot be created, belongs to another user, or it or its content is writable for others.
    """
    root = Path(state_dir) if state_dir is not None else None
    try:
        root = root or state_folder()
        home = root / application_id
        if make:
            make_directory(root)
        group = volume_group(root)
        if said := distrust(root, group=group, by_root=True):
            raise StateStoreException(
                f"state.dir: {said}. Set state.dir to a directory that belongs to {user_name(os.geteuid())} and that "
                "only this user may write to; one that is made below this one will do"
            )
        if make:
            make_directory(home)
        if not os.path.lexists(home):
            return home
        _refuse(home, home, group)
        home.chmod(stat.S_IMODE(home.stat().st_mode) & ~0o077)
        for folder, directories, files in os.walk(home):
            for name in (*directories, *files):
                with suppress(FileNotFoundError):  # another instance of the application has just removed it
                    _refuse(Path(folder, name), home, group)
    except OSError as error:
        raise not_writable(root, error) from error
    return home


def not_writable(state_dir: Path | str | None, error: OSError) -> StateStoreException:
    """Return the error for a ``state.dir`` in which something cannot be created."""
    return StateStoreException(
        f"state.dir={str(state_dir)!r} cannot be written to ({error.strerror}: {error.filename}); name a directory "
        "on a local disk that this user may write to"
    )


def _refuse(path: Path, home: Path, group: int | None) -> None:
    if said := distrust(path, group=group):
        raise StateStoreException(
            f"{said}, so its content may be somebody else's. Run this as the user whose application it is; or remove "
            f"{home}, and its state is restored from the changelogs; or, if you know that all in it is your own: "
            f"chown -R {user_name(os.geteuid())} {home} && chmod -R go-w {home}"
        )
