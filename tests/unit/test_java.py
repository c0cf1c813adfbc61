"""Which java is taken, and what is said of one that will not do."""

import os
import threading

import pytest

from sparkrelay.errors import JavaException
from sparkrelay.java import _major_version, require_java


@pytest.fixture
def a_java(tmp_path, monkeypatch):
    """`a_java(said)` makes a java that says that of its version; JAVA_HOME names its folder."""

    def make(said):
        executable = tmp_path / "bin" / "java"
        executable.parent.mkdir()
        executable.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
        executable.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        return str(executable)

    return make


def test_the_one_of_java_home(a_java):
    assert a_java('openjdk version "17.0.15" 2025-04-15') == require_java()


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ('java version "1.8.0_401"', "needs Java 17 or newer; .*bin/java is Java 8"),
        ("Unrecognized VM option", "printed no version"),
    ],
)
def test_one_that_will_not_do_is_refused(a_java, said, complaint):
    a_java(said)
    with pytest.raises(JavaException, match=complaint):
        require_java()


def test_a_java_home_without_java_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaException, match=f"JAVA_HOME={tmp_path} holds no bin/java"):
        require_java()


def test_it_starts_while_another_thread_changes_the_environment(a_java):
    executable = a_java('openjdk version "21.0.1"')
    ended = threading.Event()

    def change():
        # As numpy does while it is loaded: not through `os.environ`.
        number = 0
        while not ended.is_set():
            os.putenv(f"SPARKRELAY_TEST_{number}", "")
            os.unsetenv(f"SPARKRELAY_TEST_{number}")
            number += 1

    changing = threading.Thread(target=change)
    changing.start()
    try:
        assert {_major_version.__wrapped__(executable) for _ in range(100)} == {21}
    finally:
        ended.set()
        changing.join()
