"""Become a child that does not outlive its parent: ``python -I -S launch.py PARENT COMMAND...``.

A test run killed with SIGKILL cannot clean up, and a forgotten broker holds a gigabyte. On Linux the kernel sends the
child SIGKILL when the thread that started it ends (PR_SET_PDEATHSIG), which survives ``exec``. Elsewhere (PARENT is
``-``) a small forked watcher waits for the end of standard input, a pipe whose other end only the parent holds. In both
cases this process becomes the command, so its pid is the command's.

Refused: ``preexec_fn`` (runs Python between fork and exec, in a process with threads), and a wrapper that stays (its
pid is not the broker's, and it can be killed too). This file has no imports of ours: it runs in an isolated Python in
20 ms.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
BY_PIPE = "-"


def bind_to_parent_thread(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it ended before the request
        sys.exit(1)


def watch_standard_input() -> None:
    """Fork a watcher that kills this process at the end of standard input; replace this process's by an empty one."""
    command = os.getpid()
    if os.fork() == 0:
        os.setsid()
        while os.read(0, 1):
            pass
        # Its parent is the command; once that has ended, the pid may be reused.
        if os.getppid() == command:
            os.kill(command, signal.SIGKILL)
        os._exit(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def main() -> None:
    """Bind to the parent's life, then become the command."""
    parent, command = sys.argv[1], sys.argv[2:]
    if parent == BY_PIPE:
        watch_standard_input()
    else:
        bind_to_parent_thread(int(parent))
    os.execv(command[0], command)  # noqa: S606 - becoming the command is the purpose


if __name__ == "__main__":
    main()
