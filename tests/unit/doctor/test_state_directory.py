"""What is said of state.dir."""

from pathlib import Path

import pytest

from sparkrelay.doctor.state_directory import check_file_system, check_space, file_system_of, look_at_state_directory

GB = 1 << 30
MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
23 22 0:5 / /tmp rw - tmpfs tmpfs rw
24 22 0:6 / /mnt/a\\040b rw shared:1 - nfs4 server:/x rw
25 23 8:2 / /tmp rw - xfs /dev/sdb rw
"""


def failed(findings):
    return [one for one in findings if one.verdict == "fail"]


@pytest.mark.parametrize(
    ("path", "kind"), [("/", "ext4"), ("/usr", "ext4"), ("/tmp", "xfs"), ("/mnt/a b/c", "nfs4"), ("/tmpx", "ext4")]
)
def test_the_nearest_mount_says_what_kind_it_is(path, kind):
    assert file_system_of(Path(path), MOUNTS) == kind


def test_nothing_is_known_without_mounts():
    assert file_system_of(Path("/"), "") == ""
    assert check_file_system(Path("/x"), "").verdict == "ok"


@pytest.mark.parametrize(("kind", "words"), [("tmpfs", "memory"), ("nfs", "local disk"), ("overlay", "container")])
def test_file_systems_that_are_no_good_home(kind, words):
    finding = check_file_system(Path("/x"), kind)
    assert finding.verdict == "warn"
    assert words in finding.found + finding.remedy


@pytest.mark.parametrize(
    ("free", "total", "verdict"), [(50 * GB, 100 * GB, "ok"), (GB // 2, 10 * GB, "warn"), (3 * GB, 100 * GB, "warn")]
)
def test_space(free, total, verdict):
    assert check_space(Path("/x"), free, total).verdict == verdict


def test_a_directory_of_ones_own_is_fine_and_stays_as_it_is(tmp_path):
    root = tmp_path / "state"
    assert failed(look_at_state_directory(root, "app")) == []
    assert not root.exists()
    root.mkdir(mode=0o700)
    home = root / "app"
    home.mkdir(mode=0o755)
    found = list(look_at_state_directory(root, "app"))
    assert failed(found) == []
    assert "mode 0700" in found[0].found
    assert home.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("which", ["", "app"])
def test_what_others_may_write_to_is_named(tmp_path, which):
    (tmp_path / "app").mkdir(mode=0o700)
    (tmp_path / which).chmod(0o777)
    (finding,) = failed(look_at_state_directory(tmp_path, "app"))
    assert "mode 0777" in finding.found
    assert "mode 0700" in finding.remedy


def test_a_file_is_no_directory(tmp_path):
    file = tmp_path / "file"
    file.touch()
    (finding, *_) = failed(look_at_state_directory(file, None))
    assert finding.found == f"{file} is not a directory"
