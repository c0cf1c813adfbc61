"""Damaged batches and rows by the thousand, in processes of their own: a crash is a failure, the test run goes on.

`tests/long` throws millions.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.examples import examples

DECODER = Path(__file__).with_name("fuzz_decoder.py")
ROWS = Path(__file__).with_name("fuzz_rows.py")
AVRO = Path(__file__).with_name("fuzz_avro.py")
PROTOBUF = Path(__file__).with_name("fuzz_protobuf.py")


def throw(script, seed, count):
    done = subprocess.run(
        [sys.executable, str(script), "--seed", str(seed), "--count", str(count)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"exit {done.returncode}; {done.stdout[-200:]}\n{done.stderr[-3000:]}"
    assert f"{count} inputs" in done.stdout


def test_a_few_thousand_damaged_batches():
    throw(DECODER, seed=0, count=examples(4_000))


def test_a_few_thousand_damaged_rows():
    throw(ROWS, seed=0, count=examples(4_000))


@pytest.mark.long
def test_a_few_thousand_damaged_avro_records():
    throw(AVRO, seed=0, count=examples(4_000))


@pytest.mark.long
def test_a_few_thousand_damaged_protobuf_messages():
    throw(PROTOBUF, seed=0, count=examples(1_000))


def test_reading_one_byte_too_far_is_seen():
    """The test of the test: the pages around an input are really forbidden."""
    code = (
        "import runpy, ctypes, random\n"
        f"names = runpy.run_path({str(DECODER)!r})\n"
        "view = names['Enclosure'](1).hold(b'x' * 10, at_end=True)\n"
        "at = ctypes.addressof(ctypes.c_char.from_buffer(view))\n"
        "assert ctypes.string_at(at, 10) == b'x' * 10\n"
        "ctypes.string_at(at, 11)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode < 0
