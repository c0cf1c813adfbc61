"""The Python loop over headers says what the compiled one says, whatever the bytes."""

from __future__ import annotations

import random
import runpy
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from sparkrelay.records.batches import headers
from sparkrelay.records.batches.extent import end_offset

FUZZ = runpy.run_path(str(Path(__file__).parents[1] / "fuzz_decoder.py"))


@pytest.fixture
def not_compiled(monkeypatch):
    monkeypatch.delitem(sys.modules, "sparkrelay.records.batches.headers")


def inputs():
    for seed in range(3_000):
        yield FUZZ["mutated"](random.Random(seed)), seed % 7


@pytest.mark.long
def test_both_loops_find_the_same_end(not_compiled):
    for data, start in inputs():
        compiled, plain = headers.end_offset(memoryview(data), start), end_offset(memoryview(data), start)
        # The plain loop leaves record counts to the decoder.
        if compiled is not None:
            assert plain == compiled


def test_broken_headers_are_seen_by_both(not_compiled):
    good = bytes(FUZZ["control"](1, commit=True))
    numbers = ((8, struct.pack(">i", 20)), (16, b"\x01"), (16, b"\x03"), (23, b"\xff" * 4), (0, b"\xff" * 8))
    for at, odd in numbers:
        data = memoryview(good + good[:at] + odd + good[at + len(odd) :])
        assert headers.end_offset(data, 0) is end_offset(data, 0) is None


def test_whoever_only_looks_for_the_end_loads_no_compiled_loops():
    code = (
        "import sys\n"
        "from sparkrelay.records.batches.extent import end_offset\n"
        "assert end_offset(memoryview(b''), 5) == 5\n"
        "assert 'numba' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
