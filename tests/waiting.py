"""Waiting for a condition, as tests do it."""

import time


def wait_until(condition, complaint, timeout_s=120):
    """Poll a condition; fail with the complaint."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{complaint} after {timeout_s} s"
        time.sleep(0.02)
