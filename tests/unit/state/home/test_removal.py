"""Removing a task's state, and setting one aside that cannot be used."""

import errno
from pathlib import Path

import pytest

from sparkrelay.errors import StateStoreException, StoreOutOfStepException
from sparkrelay.state import TaskStore
from sparkrelay.state.home.removal import set_aside, wipe
from sparkrelay.state.space import full_disk


def test_a_state_that_cannot_be_removed_is_named(path):
    (path / "data.mdb").mkdir(parents=True)
    with pytest.raises(StateStoreException, match="cannot be removed"):
        wipe(path)


def test_a_state_that_cannot_be_set_aside_is_named_and_left(path, monkeypatch):
    TaskStore.open(path).close(clean=False)

    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(StateStoreException, match=rf"^the state in {path} cannot be set aside \(Permission denied\)"):
        set_aside(path)
    assert (path / "data.mdb").exists()


def test_what_cannot_be_used_is_set_aside(path, make_driver, read_all):
    assert set_aside(path) is None
    for number in range(1, 5):
        store = TaskStore.open(path)
        make_driver(store).apply({b"a": b"%d" % number})
        target = set_aside(path)
        assert target == path.with_name(f"{path.name}.corrupt-{number}")
        with pytest.raises(StoreOutOfStepException, match="wiped by another process"):
            store.take_over(2)
        store.close(clean=False)
    assert [entry.name for entry in sorted(path.parent.iterdir())] == [f"{path.name}.corrupt-{n}" for n in (3, 4)]
    store = TaskStore.open(target)
    assert read_all(store) == {b"a": b"4"}
    store.close(clean=False)


def test_a_full_disk_is_reported_with_what_was_set_aside_on_it(path):
    assert "set aside" not in str(full_disk(path, "full"))
    TaskStore.open(path).close(clean=False)
    aside = set_aside(path)
    used = (aside / "data.mdb").stat().st_blocks * 512
    assert f"; copies of it that were set aside take {used} bytes more and may be removed" in str(
        full_disk(path, "full")
    )
