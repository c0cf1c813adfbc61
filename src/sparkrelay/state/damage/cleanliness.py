"""Whether a store is valid after a reboot: a small file beside it, synced to the disk.

An unsynced store is valid while the machine runs. After a reboot it is valid only if it was synced and closed, and not
written since. The store itself may have torn pages, so a file records this: ``<boot id> clean`` or ``<boot id> dirty``.
A writer marks a clean store as dirty, on the disk, before its first write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparkrelay import host
from sparkrelay.errors import StoreCorruptedException
from sparkrelay.own_files import read_file, replace_file
from sparkrelay.state.space import full_disk

if TYPE_CHECKING:
    from pathlib import Path

BOOT_FILE: Final = "boot"


def check(path: Path) -> None:
    """Check that the store in ``path`` is valid.

    Raises:
        StoreCorruptedException: it was written under another or an unknown boot, and not closed cleanly.
    """
    try:
        words = read_file(path / BOOT_FILE).decode("ascii", errors="replace").split()
    except FileNotFoundError:
        words = []
    if len(words) != 2:
        raise StoreCorruptedException(
            f"the state in {path} does not say under which boot it was written; it must be rebuilt from its changelog"
        )
    boot, condition = words
    if condition != "clean" and boot != host.boot_id():
        raise StoreCorruptedException(
            f"the state in {path} was written before this machine's last start (boot {boot}) and not closed since; it "
            "must be rebuilt from its changelog"
        )


def mark(path: Path, *, clean: bool, durable: bool = True) -> None:
    """Mark the store in ``path`` as synced, or as dirty.

    Raises:
        StoreFullException: the disk is full, or failing.
    """
    condition = "clean" if clean else "dirty"
    try:
        replace_file(path / BOOT_FILE, f"{host.boot_id()} {condition}\n".encode("ascii"), durable=durable)
    except OSError as error:
        raise full_disk(path, f"{BOOT_FILE}: {error.strerror}") from error
