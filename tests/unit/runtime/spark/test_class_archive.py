"""When a JVM is given the archive of Spark's classes."""

import os

import pytest

from sparkrelay.runtime.spark.class_archive import archive_path, java_options, written_at_exit

OPTIONS = "SPARK_SUBMIT_OPTS"


@pytest.fixture
def archive(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(OPTIONS, raising=False)
    made = archive_path()
    made.parent.mkdir(0o700, parents=True, exist_ok=True)
    made.touch(0o400)
    return made


def test_an_archive_that_is_there_is_used(archive):
    with java_options():
        assert f"-XX:SharedArchiveFile={archive} -Xshare:auto" in os.environ[OPTIONS]
    assert OPTIONS not in os.environ


def test_the_users_own_options_win_and_stay(archive, monkeypatch):
    monkeypatch.setenv(OPTIONS, "-Xshare:off")
    with java_options():
        assert str(archive) in os.environ[OPTIONS]
        assert os.environ[OPTIONS].endswith(" -Xshare:off")
    assert os.environ[OPTIONS] == "-Xshare:off"


def test_without_an_archive_nothing_is_said(archive):
    archive.unlink()
    with java_options():
        assert OPTIONS not in os.environ


@pytest.mark.parametrize("which", ["file", "folder"])
def test_an_archive_that_others_may_have_written_is_not_used(archive, which):
    (archive if which == "file" else archive.parent).chmod(0o777)
    with java_options():
        assert OPTIONS not in os.environ


def test_another_spark_has_another_archive(archive, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert archive_path() != archive
    assert archive_path().parent == archive.parent


def test_the_archive_is_written_where_it_is_asked_for(archive):
    with written_at_exit(archive):
        assert f"-XX:ArchiveClassesAtExit={archive}" in os.environ[OPTIONS]
    assert OPTIONS not in os.environ
