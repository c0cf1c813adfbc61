"""Files that are this user's alone; as an attacker on the same host would have them."""

import ctypes
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.other_users import MALLORY, as_user, needs_root

from sparkrelay.own_files import (
    cache_folder,
    distrust,
    make_directory,
    open_file,
    read_file,
    replace_file,
    state_folder,
    volume_group,
)


@pytest.fixture
def no_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_folders_are_those_of_the_xdg_specification(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable, folder, below in (
        ("XDG_STATE_HOME", state_folder, ".local/state"),
        ("XDG_CACHE_HOME", cache_folder, ".cache"),
    ):
        for text in ("", "relative"):
            monkeypatch.setenv(variable, text)
            assert folder() == tmp_path / below / "sparkrelay"
        monkeypatch.setenv(variable, "/elsewhere")
        assert folder() == Path("/elsewhere/sparkrelay")


def test_what_is_made_is_closed_to_others_under_any_umask(no_umask, tmp_path):
    make_directory(tmp_path / "a" / "b")
    make_directory(tmp_path / "a" / "b")
    replace_file(tmp_path / "a" / "file", b"new", durable=True)
    os.close(open_file(tmp_path / "a" / "lock", os.O_RDWR | os.O_CREAT))
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o700, 0o700]
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a/file", "a/lock")] == [0o600, 0o600]


def test_what_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(NotADirectoryError, match=r"Not a directory: '.*file"):
            make_directory(path)
    with pytest.raises(FileNotFoundError, match="/proc/nowhere"):
        make_directory(Path("/proc/nowhere"))


def test_no_link_is_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("lock", f"file.{os.getpid()}", "file"):
        (tmp_path / name).symlink_to(victim)
    for flags in (os.O_RDONLY, os.O_RDWR | os.O_CREAT):
        with pytest.raises(OSError, match=r"a symbolic link, which is not followed: remove it: '.*lock'"):
            open_file(tmp_path / "lock", flags)
    with pytest.raises(OSError, match="symbolic link"):
        read_file(tmp_path / "file")
    replace_file(tmp_path / "file", b"new")
    assert read_file(tmp_path / "file") == b"new"
    assert victim.read_text() == "precious"


def test_a_file_that_cannot_be_replaced_stays_and_leaves_nothing(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(tmp_path / "file", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("mode", [0o770, 0o757, 0o777, 0o1777, 0o2775])
def test_what_others_may_write_to_is_distrusted(tmp_path, mode):
    folder = tmp_path / "folder"
    folder.mkdir()
    assert distrust(folder) is None
    folder.chmod(mode)
    assert f"{folder} (owner " in distrust(folder)
    assert f"mode {mode:04o}) may be written to by others than its owner" in distrust(folder)
    assert (distrust(folder, by_root=True) is None) == bool(mode & 0o1000)
    assert (distrust(folder, group=os.getegid()) is None) == (not mode & 0o002)
    assert distrust(folder, group=os.getegid() + 1) is not None


@needs_root
def test_what_is_another_users_is_distrusted(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    os.chown(folder, MALLORY, -1)
    for by_root in (False, True):
        said = distrust(folder, by_root=by_root)
        assert f"{folder} (owner uid {MALLORY}, mode 0755) belongs to another user than root" in said


@needs_root
def test_a_link_is_its_makers(tmp_path):
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    assert distrust(link) is None
    folder.chmod(0o777)
    assert distrust(link) is not None
    folder.chmod(0o700)
    os.lchown(link, MALLORY, -1)
    assert f"{link} (owner uid {MALLORY}" in distrust(link)


@needs_root
def test_a_volume_is_its_groups_only_if_root_gave_it_and_this_process_is_in_it(tmp_path):
    """Mounted for real, where this process may: in a mount namespace that ends with its process."""
    script = textwrap.dedent("""
        import os, subprocess, sys
        from pathlib import Path
        from sparkrelay.own_files import volume_group
        for options in ("mode=2775,gid=60001", "mode=2755,gid=60001", "mode=2775,gid=60001,uid=60002"):
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", sys.argv[1]], check=True)
            below = Path(sys.argv[1], "a", "b")
            below.mkdir(parents=True)
            for groups in ([], [60001]):
                os.setgroups(groups)
                print(volume_group(below), volume_group(below.parents[1]))
    """)
    command = ["unshare", "--mount", sys.executable, "-c", script, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode and not run.stdout:
        pytest.skip(f"no mounts here: {run.stderr.strip().splitlines()[-1]}")
    assert run.stdout.splitlines() == ["None None", "60001 60001", *["None None"] * 4], run.stderr
    assert volume_group(Path("/")) is None


def test_many_make_the_same_directories_at_once(tmp_path):
    for number in range(50):
        wanted = tmp_path / str(number) / "a" / "b"
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(make_directory, [wanted] * 8))
        assert wanted.is_dir()


def test_a_directory_that_cannot_be_made_is_named():
    with pytest.raises(FileNotFoundError, match="/proc/nowhere"):
        make_directory(Path("/proc/nowhere/below"))


@needs_root
def test_roots_files_are_trusted_in_a_user_namespace_without_root():
    """As in Apptainer's containers: there `/tmp` belongs to uid 65534."""
    libc, new_user_namespace, set_dumpable = ctypes.CDLL(None), 0x10000000, 4

    def look():
        libc.prctl(set_dumpable, 1, 0, 0, 0)
        assert libc.unshare(new_user_namespace) == 0
        Path("/proc/self/uid_map").write_text(f"1000 {MALLORY} 1")
        return f"{os.geteuid()}, {distrust(Path('/'), by_root=True)}, {distrust(Path('/'))}"

    assert as_user(MALLORY, look).startswith("1000, None, / (owner nobody, mode 0755) belongs to another user")
