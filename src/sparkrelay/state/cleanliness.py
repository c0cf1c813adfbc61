"""Whether a store survived the last boot: a small file beside it, written through to the disk.

An unsynced store is good as long as the machine runs. After another boot it is good only if it was synced, closed and
not written since. This cannot be asked of the store itself, whose pages may be torn; so a file says it:
``<boot id> clean`` or ``<boot id> dirty``. Whoever is about to write to a clean store makes the file say dirty first,
on the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparkrelay import host
from sparkrelay.errors import StoreCorruptedException
from sparkrelay.own_files import read_file, replace_file
from sparkrelay.state.space import full_disk

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BOOT_FILE", "check", "mark"]

BOOT_FILE: Final = "boot"


def check(path: Path) -> None:
    """Check that the store below ``path`` may be trusted.

    Raises:
        StoreCorruptedException: it was written under another boot, or under one nobody knows, and not closed cleanly.
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
    """Say that the store below ``path`` is synced, or may be about to change.

    Raises:
        StoreFullException: the disk does not take it.
    """
    condition = "clean" if clean else "dirty"
    try:
        replace_file(path / BOOT_FILE, f"{host.boot_id()} {condition}\n".encode("ascii"), durable=durable)
    except OSError as error:
        raise full_disk(path, f"{BOOT_FILE}: {error.strerror}") from error
