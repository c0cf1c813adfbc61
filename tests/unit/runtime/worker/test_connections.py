"""What a worker keeps open from one job to the next, and for how long."""

import shutil
from pathlib import Path

import pytest
from tests.doubles.clock import Clock

from sparkrelay.runtime.worker import connections
from sparkrelay.state import TaskStore

LIMIT = 1 << 24


@pytest.fixture
def clock(monkeypatch):
    clock = Clock(1000.0)
    monkeypatch.setattr(connections, "time", clock)
    monkeypatch.setattr(connections, "_looked_at", 0.0)
    monkeypatch.setattr(connections, "_stores", {})
    return clock


@pytest.fixture
def directory(tmp_path, clock):
    path = str(tmp_path / "0_1")
    yield path
    connections.forget_store(path)


def is_mapped(directory):
    return f"{directory}/data.mdb" in Path("/proc/self/maps").read_text(encoding="utf-8")


def test_a_store_stays_open_while_orders_are_about_it(directory, clock):
    store = connections.store(directory, map_limit=LIMIT)
    for _ in range(10):
        clock.now += 200
        connections.close_unused()
        assert connections.store(directory, map_limit=LIMIT) is store


def test_a_store_that_no_command_is_about_any_more_is_closed(directory, clock):
    """Its task has moved away, and another worker has closed it."""
    connections.store(directory, map_limit=LIMIT)
    assert is_mapped(directory)
    clock.now += 400
    connections.close_unused()
    assert not is_mapped(directory)
    TaskStore.open(Path(directory)).close(clean=False)


@pytest.mark.parametrize("remade", [False, True], ids=["removed", "made-anew"])
def test_a_store_that_was_removed_keeps_no_disk_space(remade, directory, clock):
    connections.store(directory, map_limit=LIMIT)
    shutil.rmtree(directory)
    if remade:
        Path(directory).mkdir()
        Path(directory, "data.mdb").write_bytes(b"")
    assert is_mapped(directory), "the map outlives its file"
    clock.now += 31
    connections.close_unused()
    assert not is_mapped(directory)


def test_a_look_at_what_is_open_is_taken_now_and_then(directory, clock):
    connections.close_unused()
    connections.store(directory, map_limit=LIMIT)
    shutil.rmtree(directory)
    clock.now += 1
    connections.close_unused()
    assert is_mapped(directory)
