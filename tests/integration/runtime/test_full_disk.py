"""A disk that is full: the instance says so and stops, nothing is lost, and with room it goes on where it was."""

import contextlib
import os
import re
import resource
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.waiting import LONG

from sparkrelay.errors import StoreFullException
from sparkrelay.state import TaskStore
from sparkrelay.state.home.removal import set_aside

from .long_texts import Users, keeping

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

DISK = 64 << 20
LEFT = 1 << 20


@pytest.fixture
def topics(make_topic):
    return make_topic("in", 1), make_topic("out", 1)


@pytest.fixture
def users(produce, topics):
    return Users(produce, topics[0])


@contextmanager
def no_file_grows_beyond(limit):
    """What a full disk does, to Spark's Python workers only, and without being root: writes beyond ``limit`` fail."""
    workers = _workers()
    assert workers
    for pid in workers:
        _limit(pid, limit)
    try:
        yield
    finally:
        for pid in _workers():
            _limit(pid, resource.RLIM_INFINITY)


def _workers():
    """Return the processes below this one that are Python workers, and their daemon, of which new ones are forked."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            # The name in brackets may hold blanks.
            stat = _read(entry / "stat").rpartition(b")")[2].split()
            parents[int(entry.name)] = int(stat[1]) if stat else 0

    def ours(pid):
        while pid > 1 and pid != os.getpid():
            pid = parents.get(pid, 0)
        return pid == os.getpid()

    return [pid for pid in parents if ours(pid) and b"worker.daemon" in _read(Path(f"/proc/{pid}/cmdline"))]


def _read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _limit(pid, limit):
    try:
        hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, hard))
    except ProcessLookupError:
        pass


class SmallDisk:
    """A tmpfs of its own, seen through its namespace: nobody has to be root for it."""

    def __init__(self, folder, holder):
        self.path = Path(f"/proc/{holder.pid}/root{folder}")
        self._filler = self.path / "filler"

    def fill(self):
        """Leave little room; of what is there already, nothing changes."""
        with self._filler.open("wb") as filler, contextlib.suppress(OSError):
            while True:
                filler.write(bytes(1 << 20))
                filler.flush()
        os.truncate(self._filler, self._filler.stat().st_size - LEFT)

    def free(self):
        self._filler.unlink()


class LimitedFiles:
    """Where no disk can be made: writes of the Python workers fail beyond what is there and a little."""

    def __init__(self, folder):
        self.path = folder
        self._limit = contextlib.ExitStack()

    def fill(self):
        largest = max(file.stat().st_size for file in self.path.rglob("data.mdb"))
        self._limit.enter_context(no_file_grows_beyond(largest + LEFT))

    def free(self):
        self._limit.close()


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = f"mount -t tmpfs -o size={DISK} tmpfs '{folder}' && echo mounted && exec sleep infinity"
    # As its own root in a user namespace, where that is allowed; as root where it is not.
    for unshare in ("-rm", "-m"):
        holder = subprocess.Popen(["unshare", unshare, "sh", "-c", mount], stdout=subprocess.PIPE, text=True)
        with holder:
            if holder.stdout.readline() == "mounted\n":
                yield SmallDisk(folder, holder)
                holder.send_signal(signal.SIGKILL)
                return
    limited = LimitedFiles(folder)
    yield limited
    limited.free()


@pytest.mark.long
def test_a_small_disk_that_is_filled_stops_the_instance_and_goes_on_with_room(
    disk, instance, topics, users, wait_for_table, fails_with, application_id, consumed
):
    settings = {"state.dir": str(disk.path), "max.batch.records": 200}
    users.write(0, 100)
    streams = instance(keeping(*topics), settings)
    streams.start()
    wait_for_table(topics[1], users.table, streams)
    spare = disk.path / "0_7"
    TaskStore.open(spare).close(clean=False)
    disk.fill()
    users.write(100, 3000)
    task_dir = disk.path / application_id / "0" / "0_0"
    words = rf"^task 0_0: the disk below {re.escape(str(task_dir))} did not take .* the disk has .* Free some space"
    fails_with(streams, StoreFullException, words)
    # It stays so until there is room, and what is unusable can be set aside all the same.
    again = instance(keeping(*topics), settings)
    again.start()
    fails_with(again, StoreFullException, words)
    assert set_aside(spare) == disk.path / "0_7.corrupt-1"
    disk.free()
    enough = instance(keeping(*topics), settings)
    enough.start()
    wait_for_table(topics[1], users.table, enough)
    assert not list(task_dir.parent.glob("0_0.corrupt-*"))
    keys = [key for _, _, key, _ in consumed(topics[1])]
    assert sorted(keys) == sorted(set(keys)), "an output was seen twice"
    assert enough.stop(LONG)


@pytest.mark.long
def test_files_that_may_not_grow_stop_the_instance_and_it_goes_on_once_they_may(
    instance, topics, users, wait_for_table, fails_with, tmp_path, application_id, consumed
):
    task_dir = tmp_path / "state" / application_id / "0" / "0_0"
    users.write(0, 100)
    with instance(keeping(*topics)) as before:
        before.start()
        wait_for_table(topics[1], users.table, before)
    streams = instance(keeping(*topics), {"max.batch.records": 100})
    with no_file_grows_beyond((task_dir / "data.mdb").stat().st_size):
        users.write(100, 800)
        streams.start()
        fails_with(
            streams,
            StoreFullException,
            rf"^task 0_0: the disk below {task_dir} did not take .* The state has \d+ bytes, the disk has .* Free some",
        )
    enough = instance(keeping(*topics), {"max.batch.records": 100})
    enough.start()
    wait_for_table(topics[1], users.table, enough)
    keys = [key for _, _, key, _ in consumed(topics[1])]
    assert sorted(keys) == sorted(set(keys)), "an output was seen twice"
