"""A java that costs nothing: a shell script in a JAVA_HOME of its own."""

import pytest


@pytest.fixture
def fake_java(tmp_path, monkeypatch):
    """`fake_java(script)` makes a java that says 17 when asked for its version and otherwise runs the script."""

    def make(script, version='openjdk version "17.0.15" 2025-04-15'):
        home = tmp_path / f"java-{len(list(tmp_path.iterdir()))}"
        (home / "bin").mkdir(parents=True)
        java = home / "bin" / "java"
        java.write_text(f"#!/bin/sh\nif [ \"$1\" = -version ]; then echo '{version}' >&2; exit 0; fi\n{script}\n")
        java.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(home))
        return java

    return make


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return cache / "sparkrelay"


@pytest.fixture
def kafka_jars(empty_cache):
    """A cache that looks resolved, for tests whose java is fake."""
    from sparkrelay.devkafka.jars import KAFKA_VERSION

    (empty_cache / f"kafka-{KAFKA_VERSION}").mkdir(parents=True)


@pytest.fixture
def own_tmp(tmp_path, monkeypatch):
    """A temporary directory that no other run looks at."""
    import tempfile

    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "sparkrelay"
