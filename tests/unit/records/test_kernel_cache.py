"""Whether loops were compiled is seen by numba's files, without numba."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from sparkrelay import records
from sparkrelay.records import kernel_cache

PYTHON = f"py{sys.version_info.major}{sys.version_info.minor}"


@pytest.fixture
def sources(tmp_path):
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "loop.py").touch()
    (folder / "other.py").touch()
    return folder


def kept(folder, name, *, after):
    """Make a file of numba's, so many seconds after `after` was written."""
    folder.mkdir(exist_ok=True)
    (folder / name).touch()
    path, seconds = after
    os.utime(folder / name, (0, path.stat().st_mtime + seconds))


@pytest.mark.parametrize(
    ("name", "seconds", "found"),
    [
        (f"loop.read-12.{PYTHON}.nbi", 0, True),
        (f"loop.read-12.{PYTHON}.nbi", -1, False),
        (f"someone_elses.read-12.{PYTHON}.nbi", 1, False),
        ("loop.read-12.py27.nbi", 1, False),
        (f"loop.read-12.{PYTHON}.1.nbc", 1, False),
    ],
    ids=["of these sources", "of older sources", "of another package", "of another Python", "without an index"],
)
def test_loops_count_that_are_not_older_than_their_sources(tmp_path, sources, name, seconds, found):
    assert not kernel_cache.compiled([tmp_path / "cache"], sources)
    kept(tmp_path / "cache", name, after=(sources / "loop.py", seconds))
    assert kernel_cache.compiled([tmp_path / "nowhere", tmp_path / "cache"], sources) is found


def test_folders_are_numbas():
    assert kernel_cache.cache_folders({"NUMBA_CACHE_DIR": "/there"}) == [Path("/there")]
    beside, home = kernel_cache.cache_folders({"XDG_CACHE_HOME": "/cache"})
    assert beside.name == "records"
    assert home == Path("/cache/numba")


@pytest.mark.parametrize("compiled", [True, False])
def test_only_what_is_missing_is_compiled(monkeypatch, compiled):
    calls = []
    monkeypatch.setattr(kernel_cache, "compiled", lambda: compiled)
    monkeypatch.setattr(records, "compile_kernels", lambda: calls.append(1))
    records.compile_missing_kernels.__wrapped__()
    assert len(calls) == (not compiled)


def test_one_source_that_is_newer_than_its_loops_is_enough(tmp_path, sources):
    for name in ("loop", "other"):
        kept(tmp_path / "cache", f"{name}.read-12.{PYTHON}.nbi", after=(sources / f"{name}.py", 0))
    assert kernel_cache.compiled([tmp_path / "cache"], sources)
    os.utime(sources / "other.py", (0, (sources / "other.py").stat().st_mtime + 1))
    assert not kernel_cache.compiled([tmp_path / "cache"], sources)
    kept(tmp_path / "cache", f"other.read-30.{PYTHON}.nbi", after=(sources / "other.py", 0))
    assert kernel_cache.compiled([tmp_path / "cache"], sources), "numba keeps the old one"
