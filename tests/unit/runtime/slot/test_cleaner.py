"""When obsolete directories go, and when they must not (KIP-441)."""

import os
import time

import pytest

from sparkrelay.runtime.slot.cleaner import Cleaner
from sparkrelay.state import Slot
from sparkrelay.state.home.removal import set_aside
from sparkrelay.types import TaskId

A, B, C = TaskId(0, 0), TaskId(0, 1), TaskId(0, 2)
NOW = 2_000_000_000.0
DAY = 24 * 3600


class Directories:
    def __init__(self, slot):
        self.slot = slot

    def make(self, name, age, slot=None):
        path = (slot or self.slot.path) / name
        path.mkdir(parents=True)
        (path / "data.mdb").write_bytes(b"x")
        for entry in (path / "data.mdb", path):
            os.utime(entry, (NOW - age, NOW - age))
        return path

    def names(self):
        return sorted(path.name for path in self.slot.path.iterdir() if not path.name.startswith((".", "process")))


@pytest.fixture
def directories(tmp_path):
    slot = Slot.claim(tmp_path, "app")
    yield Directories(slot)
    slot.release()


@pytest.fixture
def cleaner(directories):
    return Cleaner(directories.slot.path, delay_seconds=600, now=NOW - 1000)


def test_what_is_old_and_not_ours_goes(cleaner, directories):
    for name, age in (("0_0", 9999), ("0_1", 601), ("0_2", 599), ("0_0.corrupt-1", 601), ("notes", 9999)):
        directories.make(name, age)
    removed = cleaner.turn("t", [A], NOW)
    assert [path.name for path in removed] == ["0_0.corrupt-1", "0_1"]
    assert directories.names() == ["0_0", "0_2", "notes"]


def test_what_was_set_aside_is_as_old_as_its_setting_aside(directories):
    """A state that nobody trusts after a reboot was last written long ago."""
    before = time.time()
    aside = set_aside(directories.make("0_1", NOW - before + 9999))
    after = time.time()
    cleaner = Cleaner(directories.slot.path, delay_seconds=600, now=before - 1000)
    assert not cleaner.turn("t", [], before + 598)
    assert cleaner.turn("t", [], after + 662) == [aside]


def test_never_between_a_subscription_and_its_assignment(cleaner, directories):
    directories.make("0_1", 9999)
    cleaner.reported("t")
    assert not cleaner.turn("t", [A], NOW)
    assert not cleaner.turn("other thread", [C], NOW + 100)
    cleaner.assigned("t", [A, B])
    assert not cleaner.turn("other thread", [C], NOW + 200)
    cleaner.reported("t")
    cleaner.assigned("t", [A])
    assert not cleaner.turn("t", [A], NOW + 300), "it was here a moment ago"
    assert [path.name for path in cleaner.turn("t", [A], NOW + 2000)] == ["0_1"]


def test_a_thread_that_died_in_between_holds_nobody_up(cleaner, directories):
    directories.make("0_1", 9999)
    cleaner.reported("dead")
    cleaner.gone("dead")
    assert cleaner.turn("t", [], NOW)


def test_tasks_of_all_threads_are_kept(cleaner, directories):
    for name in ("0_0", "0_1", "0_2"):
        directories.make(name, 9999)
    cleaner.assigned("one", [A])
    assert [path.name for path in cleaner.turn("two", [B], NOW)] == ["0_2"]


def test_looks_are_rare(directories):
    cleaner = Cleaner(directories.slot.path, delay_seconds=600, now=NOW)
    directories.make("0_1", 9999)
    assert not cleaner.turn("t", [], NOW + 59)
    assert cleaner.turn("t", [], NOW + 60)
    directories.make("0_1", 9999)
    assert not cleaner.turn("t", [], NOW + 119)


def test_slots_of_others(cleaner, directories, tmp_path):
    used = Slot.claim(tmp_path, "app")
    free = Slot.claim(tmp_path, "app")
    free.release()
    directories.make("0_1", 2 * DAY, used.path)
    left = directories.make("0_1", 2 * DAY, free.path)
    waiting = directories.make("0_2", DAY / 2, free.path)
    assert cleaner.turn("t", [], NOW) == [left]
    assert waiting.exists()
    again = Slot.claim(tmp_path, "app")
    assert again.process_id == free.process_id
    again.release()
    used.release()


def test_what_cannot_be_removed_is_reported_and_tried_again(cleaner, directories, monkeypatch, caplog):
    directories.make("0_1", 9999)
    with monkeypatch.context() as patch:
        patch.setattr("os.unlink", lambda *_, **__: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
        assert not cleaner.turn("t", [], NOW)
    assert "cleaning up below" in caplog.text
    assert cleaner.turn("t", [], NOW + 60)


def test_it_knows_what_every_thread_holds(cleaner):
    cleaner.assigned("t", [A])
    cleaner.turn("other thread", [B], NOW)
    assert cleaner.held() == {A, B}
    cleaner.gone("t")
    assert cleaner.held() == {B}
