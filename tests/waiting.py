"""Waiting for a condition, as tests do it."""

import time


def wait_until(condition, complaint, timeout_s=120):
    """Poll a condition; fail with the complaint.

    What is long in coming is looked at less often: to look takes time from those that are waited for.
    """
    start = time.monotonic()
    while not condition():
        waited = time.monotonic() - start
        assert waited < timeout_s, f"{complaint} after {timeout_s} s"
        time.sleep(min(0.02 + waited / 20, 0.1))
