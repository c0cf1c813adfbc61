"""Checks of ``state.dir``: ownership, permissions, free space, kind of file system."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparkrelay.doctor.findings import fail, ok, warn
from sparkrelay.doctor.machine import read_system_file
from sparkrelay.own_files import distrust, state_folder, user_name, volume_group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkrelay.doctor.findings import Finding

_CHECK: Final = "state.dir"
_LEAST_FREE: Final = 1 << 30
_LEAST_SHARE: Final = 0.05
_GB: Final = 1 << 30
#: Lost at a reboot.
_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
#: Stores are memory-mapped and locked with flock.
_REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "afs", "fuse.sshfs"})


def look_at_state_directory(state_dir: Path | None, application_id: str | None) -> Iterator[Finding]:
    """Check the directory without changing anything.

    Args:
        state_dir: ``state.dir``; None for the default.
        application_id: the application whose subdirectory is checked too, if any.
    """
    try:
        root = state_dir or state_folder()
    except OSError as error:
        yield fail(_CHECK, f"no default: {error.strerror}", "Set state.dir to a directory on a local disk")
        return
    there = root
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        yield _owner(root, there, application_id)
        yield check_file_system(root, file_system_of(there, read_system_file("/proc/self/mountinfo")))
        usage = shutil.disk_usage(there)
    except OSError as error:
        yield fail(_CHECK, f"{root} cannot be examined ({error.strerror}: {error.filename})", _own_directory())
        return
    yield check_space(root, usage.free, usage.total)


def check_space(root: Path, free: int, total: int) -> Finding:
    """Check the free space, in bytes."""
    shown = f"{free / _GB:,.1f} GB of {total / _GB:,.1f} GB free at {root}"
    if free < min(_LEAST_FREE, total):
        return warn("disk", shown, "A full disk ends the instance: free some space, or move state.dir")
    if free < total * _LEAST_SHARE:
        return warn("disk", shown, "Check the size of the application's changelogs: a copy of them must fit here")
    return ok("disk", shown)


def check_file_system(root: Path, kind: str) -> Finding:
    """Check the kind of file system."""
    if kind in _MEMORY:
        return warn(
            "file system",
            f"{root} is on {kind}, in memory",
            "State is lost at a reboot and must be restored from changelogs; it also takes memory. Set state.dir to a "
            "directory on a disk",
        )
    if kind in _REMOTE:
        return warn(
            "file system",
            f"{root} is on {kind}, over the network",
            "Stores are memory-mapped files with locks, for local disks: over a network they are slow and may be "
            "damaged. Set state.dir to a directory on a local disk",
        )
    if kind == "overlay":
        return warn(
            "file system",
            f"{root} is in a container's own layer",
            "It is removed with the container, and state must be restored from changelogs. Mount a volume there",
        )
    return ok("file system", f"{kind or 'of unknown kind'} at {root}")


def file_system_of(path: Path, mounts: str) -> str:
    """Return the kind of file system that contains an existing path, such as ``ext4``; empty if unknown.

    ``mounts`` is the text of ``/proc/self/mountinfo``.
    """
    path = path.resolve()
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields, _, behind = line.partition(" - ")
        parts = fields.split(" ")
        if len(parts) < 5 or not behind:
            continue
        point = Path(parts[4].replace("\\040", " "))
        # A later mount at the same point hides an earlier one.
        if (path == point or point in path.parents) and len(point.parts) >= best:
            best, kind = len(point.parts), behind.split(" ")[0]
    return kind


def _owner(root: Path, there: Path, application_id: str | None) -> Finding:
    if not there.is_dir():
        return fail(_CHECK, f"{there} is not a directory", _own_directory())
    if not os.access(there, os.W_OK | os.X_OK):
        return fail(_CHECK, f"{user_name(os.geteuid())} may not write to {there}", _own_directory())
    if there != root:
        return ok(_CHECK, f"{root} does not exist yet; the first start creates it")
    group = volume_group(root)
    said = distrust(root, group=group, by_root=True)
    home = root / application_id if application_id else None
    if said is None and home is not None and os.path.lexists(home):
        said = distrust(home, group=group)
    if said:
        return fail(_CHECK, said, _own_directory())
    status = root.stat()
    return ok(_CHECK, f"{root}, owner {user_name(status.st_uid)}, mode {stat.S_IMODE(status.st_mode):04o}")


def _own_directory() -> str:
    return f"Set state.dir to a directory on a local disk that belongs to {user_name(os.geteuid())}, mode 0700"
