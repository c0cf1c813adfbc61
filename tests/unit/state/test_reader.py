"""What another process reads of a state: committed values, also while a micro-batch is open."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from sparkrelay.errors import StateStoreException, StoreOutOfStepException
from sparkrelay.state import TaskStore
from sparkrelay.state.home.removal import wipe
from sparkrelay.state.reader import UNCOMMITTED, StoreReader

from .conftest import Driver

KEYS = [b"", b"a", b"b", b"c", b"k" * 511, b"k" * 600]
ROWS = st.dictionaries(st.sampled_from(KEYS), st.none() | st.binary(max_size=2), max_size=4)


def pairs(batch):
    return dict(zip(*batch.to_pydict().values(), strict=True))


LEGS = st.lists(st.tuples(st.sampled_from("ab"), ROWS), max_size=2, unique_by=lambda leg: leg[0])


@given(st.lists(ROWS, max_size=3), LEGS)
def test_a_committed_read_gives_what_was_before_the_open_batch(tmp_path_factory, committed, opened):
    """Whatever an open batch does, and however many legs of it have run."""
    store = TaskStore.open(tmp_path_factory.mktemp("state") / "0_0")
    try:
        driver, before = Driver(store), {}
        for rows in committed:
            driver.apply(rows)
            before = {k: v for k, v in {**before, **rows}.items() if v is not None}
        after = before
        for leg, rows in opened:
            driver.apply(rows, commit=False, leg=leg)
            after = {k: v for k, v in {**after, **rows}.items() if v is not None}
        reader = StoreReader(store.path, store._environment)
        for batch, expected in ((driver.committed, before), (UNCOMMITTED, after)):
            assert pairs(reader.read("s", lambda s: s.between(), committed=batch)) == expected
            values = reader.read("s", lambda s: s.get(pa.array(KEYS)), committed=batch).to_pylist()
            assert dict(zip(KEYS, values, strict=True)) == {key: expected.get(key) for key in KEYS}
            first = reader.read("s", lambda s: s.between(b"", b"k", 2), committed=batch)
            assert pairs(first) == dict(sorted((k, v) for k, v in expected.items() if k < b"k")[:2])
    finally:
        store.close(clean=False)


def test_another_process_reads_while_the_map_grows(tmp_path):
    store = TaskStore.open(tmp_path / "0_0")
    driver = Driver(store)
    driver.apply({b"k": b"old"})
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        import pyarrow as pa
        from sparkrelay.state.reader import StoreReader
        reader = StoreReader.open(Path(sys.argv[1]))
        for line in sys.stdin:
            key = pa.array([b"k"])
            print(reader.read("s", lambda s: s.get(key).to_pylist(), committed=int(line)), flush=True)
            print(reader.read("none", lambda s: s.between().num_rows, committed=None), flush=True)
    """)
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(store.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def asked(committed):
        print(committed, file=child.stdin, flush=True)
        return child.stdout.readline().strip(), child.stdout.readline().strip()

    with child:
        assert asked(1) == ("[b'old']", "0")
        driver.apply({b"k": b"new"} | {b"%d" % n: bytes(100_000) for n in range(1000)}, commit=False)
        assert store._environment.map_size > 64 << 20
        assert asked(1) == ("[b'old']", "0")
        assert asked(2) == ("[b'new']", "0")
        child.stdin.close()
    store.close(clean=False)


def test_where_there_is_no_state(tmp_path):
    with pytest.raises(StateStoreException, match="no state"):
        StoreReader.open(tmp_path / "0_0")
    assert not (tmp_path / "0_0").exists()


def test_state_that_was_made_anew_is_not_read_on(tmp_path):
    TaskStore.open(tmp_path / "0_0").close(clean=True)
    reader = StoreReader.open(tmp_path / "0_0")
    wipe(tmp_path / "0_0")
    with pytest.raises(StoreOutOfStepException, match="open it again"):
        reader.read("s", lambda s: s.between(), committed=None)
    reader.close()
