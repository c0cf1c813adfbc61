"""Files and directories of this user's own, on a host where other users may have been first.

In a directory that others may write to, anything may be theirs: a file that we would believe, or a link to a file of
ours that we would overwrite. So what is there is looked at before it is used, directories are made with mode 0700 and
files with 0600, and no link is followed where a file is opened by name. Root is trusted: nothing can be kept from it.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
from pathlib import Path

__all__ = [
    "cache_folder",
    "distrust",
    "keep_others_from_writing",
    "make_directory",
    "open_file",
    "read_file",
    "replace_file",
    "state_folder",
    "user_name",
    "volume_group",
]

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def state_folder() -> Path:
    """Return the user's folder for what should stay: ``$XDG_STATE_HOME/sparkrelay``, ``~/.local/state/sparkrelay``.

    Raises:
        OSError: the user has no home directory.
    """
    return _user_folder("XDG_STATE_HOME", ".local/state")


def cache_folder() -> Path:
    """Return the user's folder for what can be had again: ``$XDG_CACHE_HOME/sparkrelay``, ``~/.cache/sparkrelay``.

    Raises:
        OSError: the user has no home directory.
    """
    return _user_folder("XDG_CACHE_HOME", ".cache")


def make_directory(path: Path) -> None:
    """Make a directory and those missing above it, with mode 0700; one that is there stays as it is.

    Raises:
        OSError: it cannot be made, or something else has that name.
    """
    try:
        path.mkdir(0o700)
    except FileExistsError:
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fspath(path)) from None
    except FileNotFoundError:
        # Whether it is there by now is not asked: another process may be making the same ones.
        if path.parent == path:
            raise
        make_directory(path.parent)
        path.mkdir(0o700, exist_ok=True)


def distrust(path: Path, *, group: int | None = None, by_root: bool = False) -> str | None:
    """Say why a file or directory that is there may have been written to by others; None if it cannot.

    A link counts as what it leads to if this user or root made it, otherwise as its maker's.

    Args:
        path: what is looked at. Whoever may write to directories above it can put another one in its place.
        group: id of a group that may write to it, None for no group.
        by_root: it may be root's, and if it is sticky anybody may write to it: what is made in it belongs to its maker.

    Raises:
        OSError: it cannot be looked at.
    """
    me = os.geteuid()
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode) and status.st_uid in {me, 0}:
        status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    what = f"{path} (owner {user_name(status.st_uid)}, mode {mode:04o})"
    if status.st_uid != me and not (by_root and status.st_uid in _roots()):
        return f"{what} belongs to another user than {user_name(me)}, who runs this"
    writable = mode & _OTHERS_MAY_WRITE
    if status.st_gid == group:
        writable &= ~stat.S_IWGRP
    if writable and not (by_root and mode & stat.S_ISVTX):
        return f"{what} may be written to by others than its owner"
    return None


def _roots() -> set[int]:
    """Return the ids by which root's files are shown.

    In a user namespace without root, as in Apptainer's containers, they are shown as those of the overflow id.
    """
    try:
        mapped = [line.split()[0] for line in Path("/proc/self/uid_map").read_text().splitlines()]
        return {0} if "0" in mapped else {0, int(Path("/proc/sys/kernel/overflowuid").read_text())}
    except OSError:
        return {0}


def keep_others_from_writing() -> int:
    """Set the umask so that nobody else may write to what this process and its children make; return the one before.

    Who may write to a Unix socket may connect to it.
    """
    before = os.umask(0o077)
    os.umask(before | _OTHERS_MAY_WRITE)
    return before


def volume_group(path: Path) -> int | None:
    """Return the group that root has given the volume which holds a directory to, if this process is in it.

    That is what Kubernetes' ``fsGroup`` does: with each mount it lets its group write to all that is on the volume.
    """
    path = path.resolve()
    while not path.is_mount():
        path = path.parent
    status = path.stat()
    given = status.st_uid == 0 and status.st_mode & stat.S_IWGRP
    return status.st_gid if given and status.st_gid in {os.getegid(), *os.getgroups()} else None


def open_file(path: Path, flags: int) -> int:
    """Open a file by its name, made with mode 0600 if the flags say so; return its descriptor.

    Raises:
        OSError: it cannot be opened, or is a symbolic link.
    """
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            error.strerror = "a symbolic link, which is not followed: remove it"
        raise


def read_file(path: Path) -> bytes:
    """Return what is in a file; a link is not followed.

    Raises:
        OSError: it cannot be read.
    """
    with os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
        return file.read()


def replace_file(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Write a file whole or not at all; one process at a time may write a file of that name.

    Args:
        path: which one.
        data: what is in it then.
        durable: return only when it is on the disk.

    Raises:
        OSError: it cannot be written.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)  # of a process that was killed and had our pid
    try:
        with os.fdopen(open_file(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if durable:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def user_name(uid: int) -> str:
    """Return how a user is called."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _user_folder(variable: str, below_home: str) -> Path:
    root = Path(os.environ.get(variable, ""))
    # The XDG specification: a path that is not absolute is as good as none.
    if not root.is_absolute():
        try:
            root = Path.home() / below_home
        except RuntimeError:
            raise FileNotFoundError(errno.ENOENT, "this user has no home directory", f"~/{below_home}") from None
    return root / "sparkrelay"
