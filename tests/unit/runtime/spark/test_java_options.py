"""What the driver's JVM is started with."""

import os
import re
import subprocess

import pytest

from sparkrelay.java import java_executable
from sparkrelay.runtime.spark import java_options
from sparkrelay.runtime.spark.java_options import added, small_heap

OPTIONS = "SPARK_SUBMIT_OPTS"


@pytest.fixture(autouse=True)
def no_options(monkeypatch):
    monkeypatch.delenv(OPTIONS, raising=False)


def test_options_are_there_for_the_block_alone():
    with added("-Done", "", "-Dother"):
        assert os.environ[OPTIONS] == "-Done -Dother"
    assert OPTIONS not in os.environ


def test_the_users_own_options_win_and_stay(monkeypatch):
    monkeypatch.setenv(OPTIONS, "-Xshare:off")
    with added("-Xshare:auto"):
        assert os.environ[OPTIONS] == "-Xshare:auto -Xshare:off"
    assert os.environ[OPTIONS] == "-Xshare:off"


def flags(*options):
    """Return what a JVM with these options goes by."""
    text = subprocess.run(
        [java_executable(), *options, "-XX:+PrintFlagsFinal", "-version"], capture_output=True, text=True, check=True
    ).stdout
    return dict(re.findall(r"^ *\w+ (\w+) += (\S+)", text, re.MULTILINE))


@pytest.mark.parametrize("users", [(), ("-XX:+UseG1GC", "-Xms200m"), ("-XX:+UseParallelGC",)], ids=" ".join)
def test_a_jvm_takes_them_and_whatever_the_user_names(users):
    """Two collectors that are named would keep it from starting."""
    found = flags(*small_heap({}).split(), "-Xmx1g", *users)
    assert found["UseSerialGC"] == ("false" if users else "true")
    assert found["UseG1GC"] == ("true" if "-XX:+UseG1GC" in users else "false")
    assert found["InitialHeapSize"] == str((200 if "-Xms200m" in users else 96) << 20)
    assert (found["TieredStopAtLevel"], found["TieredCompilation"]) == ("4", "true"), "both compilers are there"


@pytest.mark.parametrize("name", ["spark.driver.memory", "SPARK_DRIVER_MEMORY"])
def test_who_sizes_the_heap_has_work_for_it(name):
    assert not small_heap({name: "8g"})


def test_a_java_that_may_not_know_them_gets_none(monkeypatch):
    monkeypatch.setattr(java_options, "java_version", lambda: 26)
    assert not small_heap({})
