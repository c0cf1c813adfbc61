"""The slots of an application, as whoever starts it over sees them."""

import os

import pytest

from sparkrelay.errors import LockException, StateStoreException
from sparkrelay.state import Slot, TaskStore
from sparkrelay.state.home.application_home import ApplicationHome, remove_state
from sparkrelay.types import TaskId


@pytest.fixture
def slot(tmp_path):
    slot = Slot.claim(tmp_path, "app")
    TaskStore.open(slot.task_dir(TaskId(0, 1))).close(clean=True)
    (slot.path / "0_2.corrupt-1").mkdir()
    yield slot
    slot.release()


def test_state_is_all_but_lock_and_identity(slot, tmp_path):
    home = ApplicationHome.of(tmp_path, "app")
    assert home.slots() == [slot.path]
    assert [path.name for path in home.state()] == ["0_1", "0_2.corrupt-1"]
    for path in home.state():
        remove_state(path)
        remove_state(path)
    assert sorted(path.name for path in slot.path.iterdir()) == [".lock", "process.json"]


def test_a_held_slot_is_seen_without_a_trace(slot, tmp_path):
    home = ApplicationHome.of(tmp_path, "app")
    assert home.holders() == {slot.path: f"process {os.getpid()} on host {os.uname().nodename}"}
    with pytest.raises(LockException, match="0 is in use by process"), home.claimed():
        pass
    slot.release()
    written = (slot.path / ".lock").stat().st_mtime_ns
    assert home.holders() == {}
    assert (slot.path / ".lock").stat().st_mtime_ns == written
    with home.claimed(), pytest.raises(LockException):
        Slot.claim(tmp_path, "app", max_slots=1)
    Slot.claim(tmp_path, "app", max_slots=1).release()


def test_no_home_is_no_error_but_no_state_dir_is(tmp_path):
    assert ApplicationHome.of(tmp_path, "app").state() == []
    with pytest.raises(StateStoreException, match="is not a directory; give the instances' state.dir"):
        ApplicationHome.of(tmp_path / "typo", "app")


def test_a_link_is_removed_and_not_followed(slot, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "data.mdb").write_text("precious")
    (slot.path / "0_3").symlink_to(elsewhere)
    remove_state(slot.path / "0_3")
    assert (elsewhere / "data.mdb").read_text() == "precious"


def test_all_state_is_removed_unless_somebody_uses_it(slot, tmp_path):
    home = ApplicationHome.of(tmp_path, "app")
    with pytest.raises(LockException, match="is in use by process"):
        home.remove_state()
    assert len(home.state()) == 2
    slot.release()
    home.remove_state()
    assert home.state() == []
    again = Slot.claim(tmp_path, "app")
    assert again.process_id == slot.process_id
    again.release()
