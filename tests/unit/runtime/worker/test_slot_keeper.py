"""A keeper holds a slot for as long as it is wanted, whatever becomes of the process that forked it."""

import contextlib
import os
import select
import signal
import socket
import threading
from types import SimpleNamespace

import pytest
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from tests.waiting import LONG

from sparkrelay.errors import StateStoreException
from sparkrelay.host import process_start
from sparkrelay.runtime.contract.commands import decode_bytes
from sparkrelay.runtime.worker import slot_keeper
from sparkrelay.runtime.worker.slot_keeper import ClaimCommand, claim_slot, hold_slot as claim_and_hold
from sparkrelay.state import Slot


def hold_slot(command, wanted):
    """Claim a slot as a job does that comes to its end."""
    held, keep = claim_and_hold(command, wanted)
    with keep:
        keep.write(b"k")
    return held


@pytest.fixture
def command(tmp_path):
    return ClaimCommand(str(tmp_path / "state"), "app")


@pytest.fixture
def wanted(tmp_path):
    """A file: keepers are wanted while it is there. None is left behind."""
    flag = tmp_path / "wanted"
    flag.touch()
    yield flag
    flag.unlink(missing_ok=True)


def test_the_slot_is_held_until_nobody_wants_it(command, wanted, wait_until):
    held = hold_slot(command, wanted.exists)
    assert (held.number, held.tasks) == (0, ())
    assert process_start(held.keeper) == held.keeper_start
    other = Slot.claim(command.state_dir, command.application_id)
    assert other.number == 1
    wanted.unlink()
    wait_until(lambda: process_start(held.keeper) != held.keeper_start, "the keeper goes on")
    mine = Slot.claim(command.state_dir, command.application_id)
    assert (mine.number, mine.process_id) == (0, held.process_id)
    mine.release()
    other.release()


def test_a_claim_that_nobody_learns_of_leaves_no_keeper(command, wanted, wait_until):
    """The job was cancelled, or its worker died: who tries again must find the slot free."""
    held, keep = claim_and_hold(command, wanted.exists)
    other = Slot.claim(command.state_dir, command.application_id)
    assert (held.number, other.number) == (0, 1)
    keep.close()
    wait_until(lambda: process_start(held.keeper) != held.keeper_start, "the keeper goes on")
    again = hold_slot(command, wanted.exists)
    assert (again.number, again.process_id) == (0, held.process_id)
    other.release()


def test_a_worker_that_is_killed_before_its_answer_arrives_leaves_no_keeper(command, wanted, tmp_path, wait_until):
    answer = tmp_path / "answer"
    child = os.fork()
    if child == 0:
        held, _keep = claim_and_hold(command, wanted.exists)
        answer.write_text(f"{held.keeper} {held.keeper_start}")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    keeper, start = answer.read_text().split()
    wait_until(lambda: process_start(int(keeper)) != start, "the keeper goes on")


@pytest.fixture
def claiming(command, monkeypatch):
    """The step as a worker runs it, in an executor whose JVM lives as long as the test."""
    jvm = SimpleNamespace(jvm=os.getpid(), jvm_start=process_start(os.getpid()))
    monkeypatch.setattr(slot_keeper, "current_command", lambda kind: command)
    monkeypatch.setattr(slot_keeper, "own_executor", lambda: jvm)
    claiming = claim_slot(iter(()))
    yield claiming
    claiming.close()


def reports(batches):
    return [report for batch in batches for report in decode_bytes(batch.column(0)[0].as_py())]


def test_a_claim_reports_one_slot_which_is_held(claiming, command):
    (held,) = reports(claiming)
    assert process_start(held.keeper) == held.keeper_start
    os.kill(held.keeper, signal.SIGTERM)


def test_a_claim_whose_job_was_cancelled_meanwhile_leaves_no_keeper(claiming, command, wait_until):
    """Its worker goes on, and learns of that only once Spark closes the socket, having read nothing."""
    worker, spark = socket.socketpair()
    # As PySpark's daemon opens it: what a step yields is not written at once.
    stream = os.fdopen(worker.detach(), "wb", 65536)
    written = threading.Event()

    def write():
        with contextlib.suppress(BrokenPipeError), stream:
            ArrowStreamSerializer().dump_stream(claiming, stream)
        claiming.close()
        written.set()

    threading.Thread(target=write, daemon=True).start()
    # It writes.
    assert select.select([spark], [], [], LONG)[0]
    spark.close()
    assert written.wait(LONG)

    def free():
        slot = Slot.claim(command.state_dir, command.application_id)
        slot.release()
        return slot.number == 0

    wait_until(free, "the slot is held")


def test_a_keeper_ends_on_a_signal(command, wanted, wait_until):
    held = hold_slot(command, wanted.exists)
    os.kill(held.keeper, signal.SIGTERM)
    wait_until(lambda: process_start(held.keeper) != held.keeper_start, "the keeper goes on")


def test_a_keeper_reports_what_state_there_is(command, wanted):
    first = Slot.claim(command.state_dir, command.application_id)
    for name in ("1_2", "0_11", "0_9"):
        (first.path / name).mkdir()
        (first.path / name / "data").write_text("state")
    first.release()
    held = hold_slot(command, wanted.exists)
    assert list(map(str, held.tasks)) == ["0_9", "0_11", "1_2"]
    assert held.process_id == first.process_id


def test_a_keeper_outlives_the_process_that_forked_it_and_its_group(command, wanted, tmp_path):
    answer = tmp_path / "answer"
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        held = hold_slot(command, wanted.exists)
        answer.write_text(f"{held.keeper} {held.keeper_start}")
        os.killpg(0, signal.SIGKILL)
    os.waitpid(child, 0)
    keeper, start = answer.read_text().split()
    assert process_start(int(keeper)) == start
    other = Slot.claim(command.state_dir, command.application_id)
    assert other.number == 1
    other.release()


def test_a_state_dir_that_cannot_be_used_is_named(tmp_path, wanted):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StateStoreException, match="cannot be written to"):
        hold_slot(ClaimCommand(str(tmp_path / "file"), "app"), wanted.exists)


def test_without_a_state_dir_it_is_that_of_the_executors_user(tmp_path, wanted, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    held = hold_slot(ClaimCommand(None, "app"), wanted.exists)
    assert held.path == str(tmp_path / "sparkrelay" / "app" / "0")
