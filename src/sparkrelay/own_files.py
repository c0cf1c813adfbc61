"""Files and directories that only this user may write, on a host with other users.

In a directory that others may write to, they may have placed a file that we would trust, or a link to a file of ours
that we would overwrite. So existing files are checked before use, directories get mode 0700 and files 0600, and opening
a file by name follows no link. Root is trusted.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
from pathlib import Path

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def state_folder() -> Path:
    """Return ``$XDG_STATE_HOME/sparkrelay``, or ``~/.local/state/sparkrelay``; raises OSError without a home."""
    return _user_folder("XDG_STATE_HOME", ".local/state")


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/sparkrelay``, or ``~/.cache/sparkrelay``; raises OSError without a home."""
    return _user_folder("XDG_CACHE_HOME", ".cache")


def make_directory(path: Path) -> None:
    """Make a directory and its missing parents with mode 0700, unless it exists; raises OSError."""
    try:
        path.mkdir(0o700)
    except FileExistsError:
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fspath(path)) from None
    except FileNotFoundError:
        # Another process may be making the same directories.
        if path.parent == path:
            raise
        make_directory(path.parent)
        path.mkdir(0o700, exist_ok=True)


def distrust(path: Path, *, group: int | None = None, by_root: bool = False) -> str | None:
    """Return why others may have written to an existing file or directory; None if they cannot.

    A link of this user or root counts as its target, any other link as its owner's.

    Args:
        path: the file or directory. Whoever may write to its parents can replace it.
        group: id of a group that may write to it; None for no group.
        by_root: whether it may belong to root, and then be writable by anybody if it is sticky.

    Raises:
        OSError: it cannot be examined.
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
    """Return the ids of root's files: in a user namespace without root, as in Apptainer, also the overflow id."""
    try:
        mapped = [line.split()[0] for line in Path("/proc/self/uid_map").read_text().splitlines()]
        return {0} if "0" in mapped else {0, int(Path("/proc/sys/kernel/overflowuid").read_text())}
    except OSError:
        return {0}


def keep_others_from_writing() -> int:
    """Set the umask so that others cannot write to new files of this process and its children; return the old one.

    Write permission on a Unix socket is permission to connect.
    """
    before = os.umask(0o077)
    os.umask(before | _OTHERS_MAY_WRITE)
    return before


def volume_group(path: Path) -> int | None:
    """Return the group that root gave write access to a directory's volume, if this process is in it.

    Kubernetes' ``fsGroup`` does so: each mount makes the whole volume writable for its group.
    """
    path = path.resolve()
    while not path.is_mount():
        path = path.parent
    status = path.stat()
    given = status.st_uid == 0 and status.st_mode & stat.S_IWGRP
    return status.st_gid if given and status.st_gid in {os.getegid(), *os.getgroups()} else None


def open_file(path: Path, flags: int) -> int:
    """Return the descriptor of a file, created with mode 0600; raises OSError, also for a symbolic link."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            error.strerror = "a symbolic link, which is not followed: remove it"
        raise


def read_file(path: Path) -> bytes:
    """Return the contents of a file; raises OSError if it cannot be read or is a symbolic link."""
    with os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
        return file.read()


def replace_file(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Replace a file atomically and, if ``durable``, sync it to disk. One process at a time may write to the path."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)  # left by a killed process with our pid
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
    """Return the name of a user."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _user_folder(variable: str, below_home: str) -> Path:
    root = Path(os.environ.get(variable, ""))
    # XDG specification: a relative path is ignored.
    if not root.is_absolute():
        try:
            root = Path.home() / below_home
        except RuntimeError:
            raise FileNotFoundError(errno.ENOENT, "this user has no home directory", f"~/{below_home}") from None
    return root / "sparkrelay"
