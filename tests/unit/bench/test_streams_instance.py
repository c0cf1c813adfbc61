import os
from pathlib import Path

import pytest
from bench.children import BenchError
from bench.streams_instance import classpath

from sparkrelay.devkafka.jars import KAFKA_VERSION

# Does what javac does as far as we look: it puts classes where -d says.
COMPILER = """
echo run >> "$XDG_CACHE_HOME/runs"
while [ $# -gt 0 ]; do
  if [ "$1" = -d ]; then mkdir -p "$2"; echo class > "$2/Instance.class"; fi
  shift
done
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache whose jars look resolved."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "sparkrelay"
    (folder / f"kafka-streams-{KAFKA_VERSION}").mkdir(parents=True)
    return folder


@pytest.fixture
def fake_java(tmp_path, monkeypatch):
    def make(script):
        java = tmp_path / "java" / "bin" / "java"
        java.parent.mkdir(parents=True, exist_ok=True)
        java.write_text(f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'version "17.0.15"\' >&2; exit; fi\n{script}')
        java.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))

    return make


def test_the_query_is_compiled_once(fake_java, cache):
    fake_java(COMPILER)
    found = {classpath() for _ in range(2)}
    classes, jars = found.pop().split(os.pathsep)
    assert not found
    assert [path.name for path in Path(classes).iterdir()] == ["Instance.class"]
    assert jars == str(cache / f"kafka-streams-{KAFKA_VERSION}" / "*")
    assert (cache.parent / "runs").read_text().splitlines() == ["run"]


def test_a_java_without_a_compiler_is_refused_and_leaves_nothing(fake_java, cache):
    fake_java("echo 'Module jdk.compiler not found' >&2; exit 1")
    with pytest.raises(BenchError, match=r"(?s)needs a JDK.*--only.*Module jdk\.compiler not found"):
        classpath()
    assert [path.name for path in cache.iterdir()] == [f"kafka-streams-{KAFKA_VERSION}"]
