"""Local copies of tasks that moved away go after state.cleanup.delay.ms, and are reported no more."""

import os
import shutil
import time

import pytest

from sparkrelay import Json, StateRestoreListener, StreamsBuilder, String
from sparkrelay.state import Slot
from sparkrelay.types import TaskId

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


class Restores(StateRestoreListener):
    def __init__(self):
        self.began_at = []

    def on_restore_start(self, partition, store, starting_offset, ending_offset):
        self.began_at.append(starting_offset)


def counting(source, sink):
    builder = StreamsBuilder()
    builder.stream(source, key=String("user"), value=Json("n int")).groupBy("user").count(name="users").to(sink)
    return builder


def test_a_task_that_moved_away_leaves_its_directory_for_a_while(
    instance, make_topic, produce, wait_for_table, wait_until, tmp_path, application_id
):
    topics = make_topic("in", 4), make_topic("out", 1)
    produce(topics[0], [(f"u{n}", {"n": n}) for n in range(40)])
    counts = {f"u{n}".encode(): {"user": f"u{n}", "count": 1} for n in range(40)}
    home = tmp_path / "state" / application_id
    settings = {"state.cleanup.delay.ms": 1000, "acceptable.recovery.lag": 1_000_000}
    first = instance(counting(*topics), settings)
    first.start()
    wait_for_table(topics[1], counts, first)
    assert sorted(path.name for path in (home / "0").glob("0_*")) == ["0_0", "0_1", "0_2", "0_3"]

    second = instance(counting(*topics), settings)
    second.start()

    def shared():
        mine, others = ({path.name for path in (home / slot).glob("0_*")} for slot in ("0", "1"))
        return mine | others == {"0_0", "0_1", "0_2", "0_3"} and not mine & others and mine and others

    wait_until(shared, "the directories are not shared out")
    tasks = {str(task) for task in first._threads[0].tasks.offset_sums()}
    assert tasks == {path.name for path in (home / "0").glob("0_*")}, "a copy that is gone was reported"


@pytest.mark.long
def test_what_is_assigned_stays_however_old(instance, make_topic, produce, wait_for_table, wait_until, tmp_path):
    topics = make_topic("in", 1), make_topic("out", 1)
    produce(topics[0], [("a", {"n": 1})])
    streams = instance(counting(*topics), {"state.cleanup.delay.ms": 0})
    streams.start()
    wait_for_table(topics[1], {b"a": {"user": "a", "count": 1}}, streams)
    slot = streams._processes.all[0].slot
    assert isinstance(slot, Slot)
    stray = slot.task_dir(TaskId(7, 0))
    stray.mkdir()
    wait_until(lambda: not stray.exists(), "the directory of a task that nobody has stays")
    assert slot.task_ids() == [TaskId(0, 0)]
    produce(topics[0], [("a", {"n": 1})])
    wait_for_table(topics[1], {b"a": {"user": "a", "count": 2}}, streams)


@pytest.mark.long
def test_a_copy_that_was_left_alone_is_used_if_nothing_was_written_since(
    instance, make_topic, produce, wait_for_table, tmp_path
):
    """Brokers keep deletions in compacted topics for a day: what others delete meanwhile would come back."""
    source, sink = make_topic("in", 1), make_topic("out", 1)
    state, elsewhere = tmp_path / "state", tmp_path / "elsewhere"

    def run(count, directory=state):
        produce(source, [("a", {"n": 1})])
        restores = Restores()
        with instance(counting(source, sink), {"state.dir": str(directory)}) as streams:
            streams.set_global_state_restore_listener(restores)
            streams.start()
            wait_for_table(sink, {b"a": {"user": "a", "count": count}}, streams)
        return restores.began_at

    def leave_alone():
        before = time.time() - 2 * 86_400
        for path in (state, *state.rglob("*")):
            os.utime(path, (before, before))

    # A copy knows where its changelog ended in front of its last batch, so one alone is restored from 0.
    run(1)
    run(2)
    leave_alone()
    assert 0 not in run(3)
    shutil.copytree(state, elsewhere)
    assert 0 not in run(4, elsewhere)
    leave_alone()
    assert run(5) == [0]
