"""When a JVM is given the archive of Spark's classes."""

import os

import pytest

from sparkrelay.runtime.spark.class_archive import archive_option, archive_path, written_at_exit

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
    assert archive_option().startswith(f"-XX:SharedArchiveFile={archive} -Xshare:auto")


def test_without_an_archive_nothing_is_said(archive):
    archive.unlink()
    assert not archive_option()


@pytest.mark.parametrize("which", ["file", "folder"])
def test_an_archive_that_others_may_have_written_is_not_used(archive, which):
    (archive if which == "file" else archive.parent).chmod(0o777)
    assert not archive_option()


def test_another_spark_has_another_archive(archive, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert archive_path() != archive
    assert archive_path().parent == archive.parent


def test_the_archive_is_written_where_it_is_asked_for(archive):
    with written_at_exit(archive):
        assert f"-XX:ArchiveClassesAtExit={archive}" in os.environ[OPTIONS]
    assert OPTIONS not in os.environ
