"""What a large task leaves behind in a worker is given back, and a small one pays for nothing."""

import subprocess
import sys
from unittest.mock import Mock

from sparkrelay.runtime.worker.own import memory

MUCH = """
import os
from pathlib import Path
from sparkrelay.runtime.worker.own.memory import release_unused_memory

def megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

held = [bytearray(2_000) for _ in range(250_000)]
# What is freed lies below something that is not.
last = held.pop()
del held
before = megabytes()
release_unused_memory()
print(before, megabytes())
"""


def test_what_a_large_task_had_is_given_back():
    found = subprocess.run([sys.executable, "-c", MUCH], check=True, capture_output=True, text=True)
    before, after = map(int, found.stdout.split())
    assert before > 400
    assert after < before - 300


def test_a_small_process_keeps_what_it_has(monkeypatch):
    pool = Mock()
    monkeypatch.setattr(memory.pa, "default_memory_pool", lambda: pool)
    for kept, released in ((1 << 60, 0), (0, 1)):
        monkeypatch.setattr(memory, "_KEPT_BYTES", kept)
        memory.release_unused_memory()
        assert pool.release_unused.call_count == released


def test_where_nobody_says_how_much_it_is_nothing_is_done(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_RESIDENT", tmp_path / "statm")
    monkeypatch.setattr(memory, "_KEPT_BYTES", 0)
    monkeypatch.setattr(memory.pa, "default_memory_pool", Mock(side_effect=AssertionError))
    memory.release_unused_memory()
