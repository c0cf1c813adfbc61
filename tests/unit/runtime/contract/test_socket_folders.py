"""Folders for Unix sockets: where they are made, who may enter them, and what becomes of them after a kill."""

import multiprocessing
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.other_users import MALLORY, needs_root

from sparkrelay.runtime.contract.socket_folders import (
    LONGEST_PATH,
    NoSocketFolder,
    SocketFolder,
    remove_abandoned,
    temporary_folders,
    why_unusable,
)

NAME = "steps"


@pytest.fixture
def parent():
    """A short folder; pytest's own are too long for sockets on some hosts."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def long_folder(parent):
    """Return a folder on a path as long as that of a container of YARN."""
    folder = parent / ("application_" + "0" * 50) / ("container_" + "0" * 50)
    folder.mkdir(parents=True)
    return folder


def test_nobody_else_may_enter_it_under_any_umask(parent):
    before = os.umask(0)
    try:
        with SocketFolder([parent], len(NAME)) as folder:
            assert folder.path.parent == parent
            assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    finally:
        os.umask(before)


def test_it_is_removed_with_its_sockets(parent):
    folder = SocketFolder([parent], len(NAME))
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(folder.path / NAME))
    folder.close()
    folder.close()
    assert list(parent.iterdir()) == []


def test_the_longest_path_that_is_accepted_can_be_bound(parent):
    longest = LONGEST_PATH - len(os.fsencode(parent)) - 1
    assert why_unusable(parent, longest) is None
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(parent / ("x" * longest)))
    assert f"{LONGEST_PATH + 1} bytes" in why_unusable(parent, longest + 1)


def test_a_path_is_measured_in_bytes(parent):
    folder = parent / ("ü" * 40)
    folder.mkdir()
    assert why_unusable(folder, 20) is not None
    assert why_unusable(folder, 5) is None


def test_the_next_folder_is_used_where_one_is_too_long(parent, long_folder):
    with SocketFolder([long_folder, parent], len(NAME)) as folder:
        assert folder.path.parent == parent


def test_the_next_folder_is_used_where_one_is_missing_or_a_file(parent):
    (parent / "file").write_text("")
    with SocketFolder([parent / "missing", parent / "file", parent], len(NAME)) as folder:
        assert folder.path.parent == parent


def test_a_folder_in_which_others_could_replace_it_is_not_used(parent):
    shared = parent / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(NoSocketFolder, match=r"shared \(owner .*, mode 0777\) may be written to by others"):
        SocketFolder([shared], len(NAME))
    shared.chmod(0o1777)
    SocketFolder([shared], len(NAME)).close()


@needs_root
def test_a_folder_of_another_user_is_not_used(parent):
    theirs = parent / "theirs"
    theirs.mkdir()
    os.chown(theirs, MALLORY, MALLORY)
    with pytest.raises(NoSocketFolder, match=r"theirs .* belongs to another user"):
        SocketFolder([theirs], len(NAME))


@needs_root
def test_a_link_of_another_user_is_not_followed(parent):
    (parent / "real").mkdir()
    link = parent / "link"
    link.symlink_to(parent / "real")
    os.lchown(link, MALLORY, MALLORY)
    with pytest.raises(NoSocketFolder, match=r"link .* belongs to another user"):
        SocketFolder([link], len(NAME))
    os.lchown(link, 0, 0)
    SocketFolder([link], len(NAME)).close()


def test_where_none_can_be_made_the_error_names_each_path_its_length_and_the_remedy(parent, long_folder):
    longest = LONGEST_PATH - len("/sparkrelay-sock-12345678/") - len(NAME)
    words = rf"{LONGEST_PATH} bytes: a socket in {long_folder} would have a path of \d{{3}} bytes; "
    words += rf"{parent}/missing cannot be used: .*a path of at most {longest} bytes.*TMPDIR.*socket\.dir"
    with pytest.raises(NoSocketFolder, match=words):
        SocketFolder([long_folder, parent / "missing"], len(NAME))


def test_the_folder_of_a_killed_process_is_removed(parent):
    with Child(parent) as child:
        made = Path(child.answer())
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(made / NAME))
        remove_abandoned([parent])
        assert made.is_dir(), "its process lives"
        child.kill()
    remove_abandoned([parent / "missing", parent])
    assert list(parent.iterdir()) == []


def test_what_is_not_a_socket_is_not_removed(parent):
    with Child(parent) as child:
        made = Path(child.answer())
        (made / "notes").write_text("")
        child.kill()
    remove_abandoned([parent])
    assert (made / "notes").exists()


@needs_root
def test_the_folder_of_another_user_is_not_removed(parent):
    with Child(parent) as child:
        made = Path(child.answer())
        child.kill()
    os.chown(made, MALLORY, MALLORY)
    remove_abandoned([parent])
    assert made.is_dir()


def test_a_link_by_such_a_name_is_not_followed(parent):
    target = parent / "target"
    target.mkdir()
    (parent / "sparkrelay-sock-12345678").symlink_to(target)
    remove_abandoned([parent])
    assert target.is_dir()


def test_one_that_is_removed_before_it_is_locked_is_made_again(parent):
    stop = multiprocessing.get_context("fork").Event()
    remover = multiprocessing.get_context("fork").Process(target=_remove_until, args=(parent, stop))
    remover.start()
    try:
        for _ in range(500):
            with SocketFolder([parent], len(NAME)) as folder, socket.socket(socket.AF_UNIX) as one:
                one.bind(str(folder.path / NAME))
                assert (folder.path / NAME).exists()
    finally:
        stop.set()
        remover.join()
    assert remover.exitcode == 0


def test_temporary_folders_end_with_the_hosts_own(parent, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(parent / "temporary"))
    assert temporary_folders(parent) == [parent, parent / "temporary", Path("/tmp"), Path("/var/tmp")]
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    assert temporary_folders() == temporary_folders("/tmp/sparkrelay-sock-12345678")
    assert temporary_folders() == [Path("/tmp"), Path("/var/tmp")]


def _remove_until(parent, stop):
    while not stop.is_set():
        remove_abandoned([parent])


CHILD = f"""
import sys
from sparkrelay.runtime.contract.socket_folders import SocketFolder
folder = SocketFolder([sys.argv[1]], {len(NAME)})
print(folder.path, flush=True)
sys.stdin.read()
"""


class Child:
    """A process that has made a socket folder."""

    def __init__(self, parent):
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(parent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self._process.stdin.close()
        self._process.stdout.close()

    def answer(self):
        return self._process.stdout.readline().strip()

    def kill(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
