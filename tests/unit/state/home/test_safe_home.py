"""`state.dir` on a host with other users, who were there first."""

import contextlib
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from tests.other_users import ALICE, MALLORY, as_user, give, modes, needs_root, reachable

from sparkrelay.errors import StateStoreException
from sparkrelay.state import Slot, TaskStore
from sparkrelay.state.home.application_home import ApplicationHome
from sparkrelay.types import TaskId

TASK = TaskId(0, 1)
HOMES = ["app", "app/0", "app/0/0_1"]
PLANTED = [".lock", "process.new", "process.json", "process.json.PID"]


def use(state_dir, application_id="app"):
    """Claim a slot, make a task's state in it, and give it back; return its number."""
    slot = Slot.claim(state_dir, application_id)
    try:
        TaskStore.open(slot.task_dir(TASK)).close(clean=True)
        return f"slot {slot.number}"
    finally:
        slot.release()


def refused(state_dir, complaint):
    for look in (Slot.claim, ApplicationHome.of):
        with pytest.raises(StateStoreException, match=complaint):
            look(state_dir, "app")


@pytest.fixture
def victim(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    return victim


def test_the_default_is_the_users_state_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    slot = Slot.claim(None, "app")
    slot.release()
    assert slot.path == tmp_path / "sparkrelay" / "app" / "0"


def test_all_is_closed_to_others_under_any_umask(tmp_path):
    before = os.umask(0)
    try:
        use(tmp_path / "var" / "state")
    finally:
        os.umask(before)
    found = modes(tmp_path / "var")
    assert {"state/app/0/process.json", "state/app/0/0_1/data.mdb"} < set(found)
    for name, mode in found.items():
        assert mode == (0o700 if (tmp_path / "var" / name).is_dir() else 0o600), name


def test_a_home_that_others_may_read_is_closed(tmp_path):
    use(tmp_path)
    (tmp_path / "app").chmod(0o755)
    use(tmp_path)
    assert modes(tmp_path)["app"] == 0o700


@needs_root
@pytest.mark.parametrize("planted", PLANTED)
def test_who_made_state_dir_first_has_nothing_overwritten(tmp_path, victim, planted):
    slot = tmp_path / "state" / "app" / "0"
    slot.mkdir(parents=True)
    planted = planted.replace("PID", str(os.getpid()))
    (slot / planted).symlink_to(victim)
    give(MALLORY, tmp_path / "state")
    refused(tmp_path / "state", f"state.dir: {tmp_path}/state .owner uid {MALLORY}, mode 0755. belongs to another user")
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("planted", PLANTED)
def test_no_link_in_a_slot_is_followed(tmp_path, victim, planted):
    """Even if the link looks like one of our own, as where the directories were given to us with `chown -R`."""
    slot = tmp_path / "state" / "app" / "0"
    slot.mkdir(parents=True)
    (slot / planted.replace("PID", str(os.getpid()))).symlink_to(victim)
    in_the_way = pytest.raises(
        StateStoreException,
        match=f"symbolic link, which is not followed: remove it.*{planted}|"
        f"{planted}.*symbolic link, which is not followed: remove it",
    )
    with in_the_way if planted in {".lock", "process.json"} else contextlib.nullcontext():
        Slot.claim(tmp_path / "state", "app").release()
    assert victim.read_text() == "precious"


def test_no_link_in_a_task_is_followed(tmp_path, victim):
    use(tmp_path)
    task = tmp_path / "app" / "0" / "0_1"
    for planted in (f"boot.{os.getpid()}", "boot"):
        (task / planted).unlink(missing_ok=True)
        (task / planted).symlink_to(victim)
        with pytest.raises(StateStoreException) if planted == "boot" else contextlib.nullcontext():
            use(tmp_path)
    assert victim.read_text() == "precious"


@needs_root
@pytest.mark.parametrize("foreign", [*HOMES, "app/0/.lock", "app/0/process.json", "app/0/0_1/data.mdb"])
def test_what_is_another_users_is_refused(tmp_path, foreign):
    use(tmp_path)
    os.chown(tmp_path / foreign, MALLORY, -1)
    refused(
        tmp_path, rf"{foreign} \(owner uid {MALLORY}, .*chown -R root {tmp_path}/app && chmod -R go-w {tmp_path}/app"
    )
    os.chown(tmp_path / foreign, 0, -1)
    assert use(tmp_path) == "slot 0"


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
@pytest.mark.parametrize("open_to_others", HOMES)
def test_what_others_may_write_to_is_refused(tmp_path, open_to_others, mode):
    use(tmp_path)
    (tmp_path / open_to_others).chmod(mode)
    refused(tmp_path, rf"{open_to_others} \(owner .*, mode {mode:04o}\) may be written to by others .* chmod -R go-w")
    (tmp_path / open_to_others).chmod(0o700)
    assert use(tmp_path) == "slot 0"


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_state_dir_that_others_may_write_to_is_refused(tmp_path, mode):
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(mode)
    refused(tmp_path / "state", rf"mode {mode:04o}\) may be written to by others .* made below this one will do")
    assert use(tmp_path / "state" / "below") == "slot 0"


@needs_root
def test_a_link_to_state_dir_is_followed_if_it_is_ours(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "state")
    (tmp_path / "state").mkdir()
    assert use(link) == "slot 0"
    os.lchown(link, MALLORY, -1)
    refused(link, f"link .owner uid {MALLORY}")


@pytest.fixture
def anybody():
    """A directory that other users reach; what they would have to import, and may not read, is imported by now.

    Not below pytest's own, which every other run of pytest on this host closes to others.
    """
    with tempfile.TemporaryDirectory() as folder:
        use(Path(folder) / "first")
        yield reachable(Path(folder))


@needs_root
def test_two_users_share_a_sticky_directory(anybody):
    shared = anybody / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    assert as_user(ALICE, lambda: use(shared)) == "slot 0"
    assert as_user(MALLORY, lambda: use(shared, "other")) == "slot 0"
    said = as_user(MALLORY, lambda: use(shared))
    assert said.startswith(f"StateStoreException: {shared}/app (owner uid {ALICE}, mode 0700) belongs to another user")
    assert as_user(ALICE, lambda: use(shared)) == "slot 0"


@needs_root
def test_a_directory_that_root_made_for_somebody_is_used(anybody):
    (anybody / "app").mkdir()
    give(ALICE, anybody / "app")
    assert as_user(ALICE, lambda: use(anybody)) == "slot 0"
    said = as_user(ALICE, lambda: use(anybody, "other"))
    assert "cannot be written to (Permission denied" in said


@needs_root
@pytest.mark.parametrize("below", ["", "state"])
def test_a_volume_of_kubernetes_is_used_after_each_mount(anybody, below):
    """As `fsGroup: 60001` has it: root's, writable for the group, which gets all that is there at every mount."""
    script = textwrap.dedent("""
        import os, subprocess, sys
        from pathlib import Path
        from tests.other_users import ALICE, MALLORY, as_user
        from tests.unit.state.home.test_safe_home import use
        volume, below = Path(sys.argv[1]), sys.argv[2]
        use(volume / "first")
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=2775,gid={MALLORY}", "none", volume], check=True)
        for _ in range(2):
            print(as_user(ALICE, lambda: use(volume / below), groups=[MALLORY]))
            for path in volume.rglob("*"):
                os.chown(path, -1, MALLORY)
                path.chmod(path.stat().st_mode | (0o2770 if path.is_dir() else 0o660))
        print((volume / below / "app" / "0").stat().st_mode & 0o7777 == 0o2770)
        print(as_user(ALICE, lambda: use(volume / below)))
    """)
    command = ["unshare", "--mount", sys.executable, "-c", script, str(anybody), below]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[4])
    if run.returncode and "mount" in (why := run.stderr.strip().splitlines()[-1]):
        pytest.skip(f"no mounts here: {why}")
    *used, outside = run.stdout.splitlines()
    assert used == ["slot 0", "slot 0", "True"], run.stderr
    assert "may be written to by others" in outside, "only who is in the group trusts it"
