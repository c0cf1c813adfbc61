"""Other users of this host, for tests that run as root."""

import os
from pathlib import Path

import pytest

#: Nobody's ids, so that there is nothing of theirs on the host.
MALLORY, ALICE = 60_001, 60_002

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")


def give(uid, path):
    """Make a file, a link or a directory with all that is in it another user's."""
    for one in [path, *(path.rglob("*") if path.is_dir() and not path.is_symlink() else ())]:
        os.lchown(one, uid, uid)


def as_user(uid, action, *, groups=()):
    """Run `action()` as another user, in a fork; return the text that it returns, or that of its error."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups(groups)
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            try:
                text = action()
            except Exception as error:  # noqa: BLE001 - the test looks at it
                text = f"{type(error).__name__}: {error}"
            os.write(writer, text.encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        text = answer.read().decode()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return text


def modes(folder):
    """Return what is in a directory, itself included, as name -> mode."""
    return {str(path.relative_to(folder)): path.lstat().st_mode & 0o7777 for path in [folder, *folder.rglob("*")]}


def reachable(folder):
    """Let other users reach a directory of this test's, whose parents pytest keeps to itself."""
    for parent in [folder, *folder.parents]:
        if parent == Path(folder.anchor) or parent.stat().st_mode & 0o001:
            return folder
        parent.chmod(parent.stat().st_mode | 0o011)
    return folder
