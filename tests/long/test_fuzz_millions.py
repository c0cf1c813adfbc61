"""Damaged batches and rows by the million; `FUZZ_INPUTS` says how many (10 million if not), `FUZZ_SEED` the first.

They run in processes of their own, some for each core, so that a crash is a failure and not the end of the test run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

CHUNK = 100_000


@pytest.mark.long
@pytest.mark.timeout(12 * 3600)
@pytest.mark.parametrize("script", ["fuzz_decoder.py", "fuzz_rows.py", "fuzz_avro.py", "fuzz_protobuf.py"])
def test_millions_of_damaged_inputs(project_root, script):
    decoder = project_root / "tests" / "unit" / "records" / script
    count, first = int(os.environ.get("FUZZ_INPUTS", "10_000_000")), int(os.environ.get("FUZZ_SEED", "1_000_000"))

    def throw(seed):
        size = min(CHUNK, first + count - seed)
        done = subprocess.run(
            [sys.executable, str(decoder), "--seed", str(seed), "--count", str(size)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"exit {done.returncode}; {done.stdout[-200:]}\n{done.stderr[-3000:]}"
        assert f"{size} inputs" in done.stdout

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for running in [pool.submit(throw, seed) for seed in range(first, first + count, CHUNK)]:
            running.result()
