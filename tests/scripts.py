"""Scripts of pages, run as a reader would run them."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running(file, *arguments, environment=None, **options):
    """Run a script; it and all that it has started are dead in the end."""
    process = subprocess.Popen(
        [sys.executable, str(file), *arguments],
        env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
        start_new_session=True,
        text=True,
        **options,
    )
    try:
        yield process
    finally:
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.getsid(int(entry.name)) == process.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        process.wait()
