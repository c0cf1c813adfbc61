from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest
from tests.waiting import wait_until

from sparkrelay.errors import LockException, StateStoreException
from sparkrelay.host import process_start
from sparkrelay.state import Slot, TaskStore
from sparkrelay.state.home import file_lock
from sparkrelay.state.home.file_lock import FileLock
from sparkrelay.state.home.removal import wipe
from sparkrelay.types import TaskId

CLAIM = """
import sys
from sparkrelay.state import Slot
slot = Slot.claim(sys.argv[1], "app")
print(slot.number, slot.process_id, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def start():
    """Start code in a process of its own and wait for its first line; it ends with its input, or by force."""
    children = []

    def run(code, *arguments):
        child = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        children.append(child)
        return child, child.stdout.readline().split()

    yield run
    for child in children:
        child.kill()
        child.communicate()


def test_slots_are_taken_lowest_first(tmp_path):
    first = Slot.claim(tmp_path, "app")
    second = Slot.claim(str(tmp_path), "app")
    other = Slot.claim(tmp_path, "other")
    assert (first.number, second.number, other.number) == (0, 1, 0)
    assert first.path == tmp_path / "app" / "0"
    assert len({first.process_id, second.process_id, other.process_id}) == 3
    first.release()
    assert not first.held
    again = Slot.claim(tmp_path, "app")
    assert (again.number, again.process_id) == (0, first.process_id)
    for slot in (again, second, other):
        slot.release()
        slot.release()


def test_a_dead_owners_slot_is_taken_over_with_its_identity(tmp_path, start):
    child, (number, process_id) = start(CLAIM, tmp_path)
    mine = Slot.claim(tmp_path, "app")
    assert (int(number), mine.number) == (0, 1)
    child.send_signal(signal.SIGKILL)
    child.wait()
    taken = Slot.claim(tmp_path, "app")
    assert (taken.number, str(taken.process_id)) == (0, process_id)
    taken.release()
    mine.release()


def test_a_forked_child_does_not_hold_the_slot(tmp_path):
    slot = Slot.claim(tmp_path, "app")
    (reader, writer), (ready, say_ready) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.write(say_ready, b".")
        os.read(reader, 1)
        os._exit(0)
    os.read(ready, 1)
    # Closed without unlocking, as when the process dies: only the child could still hold it.
    os.close(slot._lock._file)
    slot._lock._file = -1
    again = Slot.claim(tmp_path, "app")
    assert again.number == 0
    again.release()
    os.close(writer)
    os.waitpid(child, 0)
    for descriptor in (reader, ready, say_ready):
        os.close(descriptor)


def test_too_many_owners_are_named(tmp_path):
    held = [Slot.claim(tmp_path, "app", max_slots=2) for _ in range(2)]
    with pytest.raises(LockException, match=rf"all 2 slots of application 'app' .* by process {os.getpid()} on host"):
        Slot.claim(tmp_path, "app", max_slots=2)
    for slot in held:
        slot.release()


def test_unknown_fields_of_the_identity_stay(tmp_path):
    slot = Slot.claim(tmp_path, "app")
    file = slot.path / "process.json"
    file.write_text(json.dumps({"processId": str(slot.process_id), "later": 1}))
    slot.release()
    again = Slot.claim(tmp_path, "app")
    assert again.process_id == slot.process_id
    assert json.loads(file.read_text())["later"] == 1
    again.release()


def test_a_copied_slot_gets_an_identity_of_its_own(tmp_path, caplog):
    slot = Slot.claim(tmp_path / "a", "app")
    TaskStore.open(slot.task_dir(TaskId(0, 0))).close(clean=True)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    copy = Slot.claim(tmp_path / "b", "app")
    assert copy.process_id != slot.process_id
    assert copy.task_ids() == slot.task_ids() == [TaskId(0, 0)]
    assert f"this process gets a new identity in place of {slot.process_id}" in caplog.text
    for one in (slot, copy):
        one.release()
        again = Slot.claim(one.path.parent.parent, "app")
        assert again.process_id == one.process_id
        again.release()


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_a_slot_that_is_pulled_away_under_its_owner_is_noticed(tmp_path, replaced):
    slot = Slot.claim(tmp_path, "app")
    slot.require_in_place()
    shutil.rmtree(tmp_path / "app")
    other = Slot.claim(tmp_path, "app") if replaced else None
    with pytest.raises(StateStoreException, match=r"app/0 was removed or replaced while this instance used it"):
        slot.require_in_place()
    slot.release()
    if other is not None:
        other.require_in_place()
        other.release()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '"x"', '{"processId": 5}', '{"other": 1}', '{"processId": "no-uuid"}']
)
def test_an_unreadable_identity_is_replaced_and_logged(tmp_path, content, caplog):
    slot = Slot.claim(tmp_path, "app")
    slot.release()
    (slot.path / "process.json").write_text(content)
    again = Slot.claim(tmp_path, "app")
    assert again.process_id != slot.process_id
    assert "gets a new identity" in caplog.text
    again.release()
    third = Slot.claim(tmp_path, "app")
    assert third.process_id == again.process_id
    third.release()


def test_a_state_dir_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StateStoreException, match=r"state\.dir='.*file' cannot be written to \(Not a directory"):
        Slot.claim(tmp_path / "file", "app")
    with pytest.raises(StateStoreException, match=r"state\.dir='/proc/nowhere' cannot be written to"):
        Slot.claim("/proc/nowhere", "app")


def test_tasks_with_state_are_listed(tmp_path):
    slot = Slot.claim(tmp_path, "app")
    TaskStore.open(slot.task_dir(TaskId(1, 10))).close(clean=False)
    TaskStore.open(slot.task_dir(TaskId(1, 2))).close(clean=False)
    slot.task_dir(TaskId(0, 0)).mkdir()
    (slot.path / "0_1.corrupt-1").mkdir()
    (slot.path / "0_1.corrupt-1" / "data.mdb").write_text("")
    (slot.path / "0_3").write_text("")
    assert slot.task_ids() == [TaskId(1, 2), TaskId(1, 10)]
    wipe(slot.task_dir(TaskId(1, 2)))
    assert slot.task_ids() == [TaskId(1, 10)]
    slot.release()


# -- file locks


def test_an_unreadable_record_names_nobody(tmp_path):
    lock = FileLock(tmp_path / "lock")
    assert lock.acquire()
    (tmp_path / "lock").write_text("?")
    assert lock.holder() is None
    lock.release()


def test_who_asks_whether_a_lock_is_held_is_in_nobodys_way(tmp_path):
    lock, other = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert lock.acquire()
    lock.release()
    ended = threading.Event()

    def ask():
        while not ended.is_set():
            other.is_held_elsewhere()

    askers = [threading.Thread(target=ask) for _ in range(2)]
    for asker in askers:
        asker.start()
    try:
        for _ in range(2000):
            assert lock.acquire(), "somebody only asked, and was taken for a holder"
            assert other.is_held_elsewhere()
            assert not other.acquire()
            lock.release()
    finally:
        ended.set()
        for asker in askers:
            asker.join()
    assert not other.is_held_elsewhere()


def test_a_lock_whose_asker_is_stopped_is_given_up_after_a_while(tmp_path, monkeypatch):
    monkeypatch.setattr(file_lock, "_ASKING_SECONDS", 0.05)
    lock = FileLock(tmp_path / "lock")
    with (tmp_path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert not lock.acquire()
        assert not lock.is_held_elsewhere()
    assert lock.acquire()
    lock.release()


def test_process_start_names_a_process():
    assert process_start(os.getpid()) == process_start(os.getpid())
    child = os.fork()
    if child == 0:
        os._exit(0)
    wait_until(lambda: process_start(child) is None, "a zombie counts as running")
    os.waitpid(child, 0)
    assert process_start(child) is None
