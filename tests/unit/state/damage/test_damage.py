"""Bits turned at random in a store's file: no answer is wrong. The bar is RocksDB's, which has checksums, too."""

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.waiting import LONG

from sparkrelay.errors import StoreCorruptedException
from sparkrelay.state import TaskStore

#: By a page that leads nowhere, by a file that ends too early, by an assertion of LMDB's.
_FAULTS = {-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT}


def run(home, first, last):
    """Try seeds until one kills the process; return what came of each, and the seed and the fault that it died by."""
    program = [sys.executable, "-m", "tests.unit.state.damaged_store", str(home), str(first), str(last)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=LONG, check=False)
    lines = [line.split(" ", 2) for line in done.stdout.splitlines()]
    outcomes = {int(line[1]): line[2] for line in lines if line[0] == "end"}
    if done.returncode == 0:
        return outcomes, None
    assert done.returncode in _FAULTS, done.stderr
    return outcomes, max(int(line[1]) for line in lines if line[0] == "begin")


def try_all(home, first, last):
    tally = Counter()
    while first < last:
        outcomes, died = run(home, first, last)
        wrong = {seed: outcome for seed, outcome in outcomes.items() if outcome not in {"right", "found"}}
        # The disk is said to fail where LMDB is led to write beyond what a file can have.
        assert all("Input/output error" in outcome for outcome in wrong.values()), wrong
        tally.update(outcomes.values())
        if died is None:
            break
        with pytest.raises(StoreCorruptedException, match=r"a Python worker died while it .* \(Fatal Python error: "):
            TaskStore.open(home / "work" / "0_0")
        tally["died"] += 1
        first = died + 1
    return tally


@pytest.mark.long
def test_turned_bits_are_found_or_change_nothing(tmp_path):
    tally = try_all(tmp_path, 0, 250)
    assert min(tally["found"], tally["right"]) > 50, tally


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 9000, 1000))
def test_many_turned_bits_are_found_or_change_nothing(tmp_path, first):
    try_all(tmp_path, first, first + 1000)


@pytest.mark.parametrize(("number", "noted"), [(signal.SIGKILL, False), (signal.SIGBUS, True)])
def test_a_worker_that_dies_in_a_store_leaves_a_note_but_for_one_that_is_killed(path, number, noted):
    assert died(path, f"store.environment.read(lambda _: os.kill(os.getpid(), {int(number)}))").returncode == -number
    if noted:
        with pytest.raises(StoreCorruptedException, match="Bus error"):
            TaskStore.open(path)
    else:
        TaskStore.open(path).close(clean=False)


def died(path, how):
    """Have a worker open a store, and die."""
    code = f"""
import os, signal
from pathlib import Path
from sparkrelay.state import TaskStore
store = TaskStore.open(Path({str(path)!r}), in_worker=True)
store.take_over(1)
{how}
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LONG, check=False)


def test_a_process_that_has_a_store_open_learns_of_another_that_died_in_it(path):
    store = TaskStore.open(path, in_worker=True)
    Path(path, "fault").write_text("Fatal Python error: Bus error\n")
    with pytest.raises(StoreCorruptedException, match=r"died while .*\(Fatal Python error: Bus error; the rest is"):
        store.take_over(1)
    store.close(clean=False)


def test_a_worker_that_dies_elsewhere_leaves_no_note(path):
    done = died(path, "os.kill(os.getpid(), signal.SIGSEGV)")
    assert (done.returncode, "Segmentation fault" in done.stderr) == (-signal.SIGSEGV, True)
    TaskStore.open(path).close(clean=False)
