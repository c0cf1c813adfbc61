"""Which stores are trusted after the machine has been started anew."""

import os
import stat

import pytest

from sparkrelay import host
from sparkrelay.errors import StoreCorruptedException, StoreOutOfStepException
from sparkrelay.state import TaskStore
from sparkrelay.state.home.removal import wipe

CLOSE_CLEANLY = """
import sys, pathlib
from sparkrelay.state import TaskStore
TaskStore.open(pathlib.Path(sys.argv[1])).close(clean=True)
"""


@pytest.fixture
def reboot(monkeypatch):
    """Makes the machine look as if it had been started anew."""
    return lambda name="next": monkeypatch.setattr(host, "boot_id", lambda: f"boot-{name}")


def test_an_unclean_store_of_another_boot_must_be_rebuilt(path, make_driver, reboot):
    store = TaskStore.open(path)
    make_driver(store).apply({b"a": b"1"})
    store.close(clean=False)
    TaskStore.open(path).close(clean=False)
    reboot()
    with pytest.raises(
        StoreCorruptedException, match=r"before this machine's last start .* rebuilt from its changelog"
    ):
        TaskStore.open(path)
    wipe(path)
    TaskStore.open(path).close(clean=False)


@pytest.mark.parametrize("left", [False, True])
def test_what_a_removal_that_was_cut_short_says_is_taken_back_for_good(path, monkeypatch, left):
    """A power loss would bring it back, and the state that is written from now on would be believed."""
    if left:
        TaskStore.open(path).close(clean=True)
        (path / "data.mdb").unlink()
    boot, fsync, files, safe = path / "boot", os.fsync, set(), []

    def noted(descriptor):
        fsync(descriptor)
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            files.add(status.st_ino)
        elif os.path.samestat(status, path.stat()) and boot.stat().st_ino in files:
            safe.append((boot.read_text().split()[1], (path / "data.mdb").exists()))

    monkeypatch.setattr(os, "fsync", noted)
    TaskStore.open(path).close(clean=False)
    assert boot.read_text().split()[1] == "dirty"
    # It is on the disk before there is any state. Where nothing was left, nothing waits for the disk.
    assert (bool(files), safe) == (left, [("dirty", False)] if left else [])


def test_a_clean_store_survives_boots_until_it_is_written(path, make_driver, reboot, read_all):
    store = TaskStore.open(path)
    make_driver(store).apply({b"a": b"1"}, commit=False)
    store.close(clean=True)
    reboot("second")
    store = TaskStore.open(path)
    assert read_all(store) == {b"a": b"1"}
    assert store.header.clean
    store.close(clean=False)
    reboot("third")
    store = TaskStore.open(path)
    store.take_over(2)
    assert (store.header.clean, store.header.boot_id) == (False, "boot-third")
    store.close(clean=False)
    reboot("fourth")
    with pytest.raises(StoreCorruptedException):
        TaskStore.open(path)


def test_closing_cleanly_twice_is_clean(path, make_driver, reboot, read_all):
    store = TaskStore.open(path)
    make_driver(store).apply({b"a": b"1"}, commit=False)
    store.close(clean=True)
    TaskStore.open(path).close(clean=True)
    reboot()
    store = TaskStore.open(path)
    assert read_all(store) == {b"a": b"1"}
    assert store.header.clean
    store.close(clean=True)


def test_who_goes_on_writing_after_anothers_clean_close_is_noticed(path, driver, run_child, reboot):
    driver.apply({b"a": b"1"})
    run_child(CLOSE_CLEANLY, path)
    assert driver.store.header.clean
    driver.apply({b"a": b"2"})
    driver.store.close(clean=False)
    reboot()
    with pytest.raises(StoreCorruptedException):
        TaskStore.open(path)


def test_a_write_that_fails_leaves_a_clean_store_clean_or_says_less(path, make_driver, reboot):
    store = TaskStore.open(path)
    driver = make_driver(store)
    driver.apply({b"a": b"1"})
    store.close(clean=True)
    store = driver.store = TaskStore.open(path)
    with pytest.raises(StoreOutOfStepException):
        driver.apply({b"a": b"1"}, task_epoch=9)
    store.close(clean=True)
    reboot()
    TaskStore.open(path).close(clean=False)


def test_a_store_that_does_not_name_its_boot_must_be_rebuilt(path):
    TaskStore.open(path).close(clean=True)
    (path / "boot").write_text("")
    with pytest.raises(StoreCorruptedException, match="does not say under which boot"):
        TaskStore.open(path)
