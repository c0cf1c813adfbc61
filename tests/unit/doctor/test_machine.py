"""What is said of a machine."""

import socket

import pytest

from sparkrelay.doctor import machine
from sparkrelay.errors import JavaException


def verdicts(findings):
    return [(one.verdict.value, one.check) for one in findings]


def test_an_old_python_is_refused():
    assert machine.check_python((3, 10, 4), "/p").verdict == "fail"
    assert machine.check_python((3, 12, 0), "/p").found == "3.12.0, /p"


def test_packages_are_looked_at_one_by_one():
    needed = [
        "numpy>=2",
        "pandas<3,>=2.2",
        "lmdb>=1.6",
        "protobuf>=6; extra == 'protobuf'",
        "kafka-python<3.1,>=3.0.12",
    ]
    there = {"numpy": "1.26.4", "pandas": "2.3.1", "kafka-python": "3.1"}
    found = list(machine.check_packages(needed, there.get))
    assert verdicts(found) == [
        ("fail", "package numpy"),
        ("fail", "package lmdb"),
        ("fail", "package kafka-python"),
        ("ok", "packages"),
    ]
    assert found[1].remedy == "pip install 'lmdb>=1.6'"
    assert found[3].found == "pandas 2.3.1"


def test_our_own_requirements_are_met_here():
    assert [
        one for one in machine.check_packages(machine.installed_requirements(), machine._version) if one.remedy
    ] == []


def test_a_missing_java_brings_its_remedy():
    def none():
        raise JavaException("there is no java on PATH. Install a JDK")

    assert machine.check_java(none).remedy == "there is no java on PATH. Install a JDK"
    assert machine.check_java(lambda: "/usr/bin/java").found == "/usr/bin/java"


def test_another_spark_than_pyspark_s(tmp_path):
    assert machine.check_spark_home(None, "4.3.0") is None
    assert machine.check_spark_home(tmp_path, "4.3.0").found == f"{tmp_path} contains no Spark"
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-4.0.1.jar").touch()
    finding = machine.check_spark_home(tmp_path, "4.3.0")
    assert finding.verdict == "fail"
    assert "is Spark 4.0.1, and the package pyspark is 4.3.0" in finding.found
    assert machine.check_spark_home(tmp_path, "4.0.1").verdict == "ok"


def test_codecs_that_were_not_compiled_get_a_warning():
    assert "sparkrelay prepare" in machine.check_kernels(compiled=False).remedy
    assert machine.check_kernels(compiled=True).verdict == "ok"


@pytest.mark.parametrize(("found", "verdict"), [(8000, "ok"), (3000, "warn"), (500, "fail")])
def test_memory(found, verdict):
    assert machine.check_memory(found).verdict == verdict


@pytest.mark.parametrize(("soft", "verdict"), [(-1, "ok"), (4096, "ok"), (1024, "warn")])
def test_open_files(soft, verdict):
    assert machine.check_open_files(soft, -1).verdict == verdict


@pytest.mark.parametrize(("kept", "verdict"), [(True, "ok"), (False, "warn"), (None, "skip")])
def test_clock(kept, verdict):
    assert machine.check_clock(kept).verdict == verdict


def test_cores():
    assert machine.check_cores(0.5).verdict == "warn"
    assert machine.check_cores(2).found == "2"


def test_a_port_that_is_taken():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert machine.check_port(port).verdict == "fail"
    assert machine.check_port(port).verdict == "ok"


def test_this_machine_is_looked_at_to_the_end():
    checks = [check for _, check in verdicts(machine.look_at_machine())]
    assert checks[:2] == ["sparkrelay", "python"]
    assert {"java", "record codecs", "cores", "open files", "clock"} <= set(checks)
