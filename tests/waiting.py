"""Waiting for conditions: one limit for all, so long that only what never happens reaches it."""

import shutil
import time
from contextlib import contextmanager
from pathlib import Path

#: Seconds. Only a failing test waits this long, however busy the machine is.
LONG = 120
#: Seconds: a timeout that must not be waited for. A test that did takes longer than LONG, and ends with its own report.
AVOIDED = 2 * LONG


def wait_until(condition, complaint, timeout_s=LONG, *, between=None):
    """Poll a condition; fail with the complaint, a text or a function that returns one.

    The longer it takes, the more rarely it is looked at: looking takes time from the processes that are waited for.
    With `between` that is called after each look, instead of sleeping.
    """
    start = time.monotonic()
    while not condition():
        waited = time.monotonic() - start
        assert waited < timeout_s, f"{complaint() if callable(complaint) else complaint} after {timeout_s} s"
        if between is None:
            time.sleep(min(0.02 + waited / 20, 0.1))
        else:
            between()


def remove_folder(path):
    """Remove a folder of an instance that has stopped.

    A worker whose job was cancelled, as a restore is by a stop, may write to the state there for a moment.
    """

    def gone():
        shutil.rmtree(path, ignore_errors=True)
        return not Path(path).exists()

    wait_until(gone, f"{path} is still written to")


def collect(poll, enough, complaint, timeout_s=LONG):
    """Gather the rows of one `poll()` after another until `enough(rows)`; fail with the complaint.

    It does not sleep: `poll` waits for rows itself.
    """
    rows = []
    wait_until(
        lambda: enough(rows),
        lambda: f"{complaint} but {_shown(rows)}",
        timeout_s,
        between=lambda: rows.extend(poll()),
    )
    return rows


async def collect_async(poll, enough, complaint, timeout_s=LONG):
    """Do as `collect` does, with a `poll` that is awaited."""
    rows, start = [], time.monotonic()
    while not enough(rows):
        assert time.monotonic() - start < timeout_s, f"{complaint} but {_shown(rows)} after {timeout_s} s"
        rows += await poll()
    return rows


def _shown(rows):
    return f"{len(rows)} rows, the last {rows[-1]!s:.200}" if rows else "no row"


@contextmanager
def within(limit_s=LONG):
    """Fail where the body takes longer.

    It shows that a body does not wait for the end of a timeout, which must be AVOIDED, that is far longer.
    """
    start = time.monotonic()
    yield
    took = time.monotonic() - start
    assert took < limit_s, f"it took {took:.1f} s"
