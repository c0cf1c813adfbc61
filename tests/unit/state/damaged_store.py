"""A store in whose file bits are turned: what is read of it is what was written, or an error. Run as a program.

It may die by a fault, and prints each seed before it begins with it, and what came of it.
"""

from __future__ import annotations

import random
import shutil
import struct
import sys
from pathlib import Path

import pyarrow as pa

from sparkrelay.errors import StateStoreException, StoreCorruptedException
from sparkrelay.state import BatchStamp, MergeResult, TaskStore
from sparkrelay.state.reader import UNCOMMITTED, StoreReader
from sparkrelay.state.space import DATA_FILE
from sparkrelay.state.view import merging
from sparkrelay.types import TopicPartition

PAGE = 4096
#: LMDB's flags of a page.
KINDS = {"branch": 1, "leaf": 2, "overflow": 4, "meta": 8}
INPUT = TopicPartition("input", 0)
STORES = ("rows", "more")


class History:
    """A store, and what it has held after each transaction."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = TaskStore.open(path, in_worker=True)
        self.store.take_over(1)
        self.held: dict[str, dict[bytes, bytes]] = {name: {} for name in STORES}
        self.batch = 0
        self.snapshots: dict[object, dict[str, dict[bytes, bytes]]] = {}
        self.note()

    def note(self) -> None:
        self.snapshots[self.moment()] = {name: dict(rows) for name, rows in self.held.items()}

    def moment(self) -> object:
        header = self.store.header
        return header.batch, header.next_journal, tuple((entry.leg, entry.batch) for entry in header.journals)

    def apply(self, name: str, changes: dict[bytes, bytes | None]) -> None:
        number = self.batch + 1
        keys, new = pa.array(changes, pa.binary()), pa.array(changes.values(), pa.binary())
        stamp = BatchStamp(
            task_epoch=1,
            number=number,
            committed=self.batch,
            ranges={INPUT: (self.batch, number)},
            positions_before={INPUT: self.batch},
        )
        self.store.change_batch(
            "leg",
            name,
            batch=stamp,
            operate=merging(name, keys, lambda _: MergeResult(new, pa.record_batch({"a": [1]}))),
        )
        self.batch = number
        self.held[name] = {key: value for key, value in (self.held[name] | changes).items() if value is not None}
        self.note()


def changes_of(random_: random.Random, count: int) -> dict[bytes, bytes | None]:
    """Return keys of all lengths, and values, among them such as take pages of their own."""
    changes: dict[bytes, bytes | None] = {}
    for _ in range(count):
        key = b"key-%05d" % random_.randrange(4000)
        kind = random_.random()
        if kind < 0.01:
            key = random_.choice([b"", key * 60, key * 70])
        value = random_.randbytes(random_.choice([0, 8, 25, 25, 25, 100]) if kind < 0.995 else 6000)
        changes[key] = None if random_.random() < 0.1 else value
    return changes


def build(path: Path) -> History:
    random_ = random.Random(1)
    history = History(path)
    for number in range(12):
        history.apply(STORES[number % 3 == 2], changes_of(random_, 700 if number < 6 else 60))
    return history


def turn_bits(file: Path, random_: random.Random) -> str:
    """Turn one bit, or a few that lie together, on a page of some kind; return where."""
    data = file.read_bytes()
    kind = random_.choice([*KINDS, "any"])
    pages = [
        page
        for page in range(len(data) // PAGE)
        if kind == "any" or struct.unpack_from("<H", data, page * PAGE + 10)[0] & KINDS[kind]
    ]
    page = random_.choice(pages)
    # Headers and the places of nodes are in front, keys and values from the end.
    at = page * PAGE + random_.choice([random_.randrange(64), random_.randrange(PAGE)])
    mask = random_.choice([1 << random_.randrange(8), 1 << random_.randrange(8), random_.randrange(1, 256)])
    with file.open("r+b") as whole:
        whole.seek(at)
        whole.write(bytes([data[at] ^ mask]))
    return f"{kind} page {page}, byte {at % PAGE}, bits {mask:08b}"


def require_right(store: TaskStore, held: dict[str, dict[bytes, bytes]]) -> None:
    """Compare everything that can be read with what was written."""
    for name, rows in held.items():
        found = {
            key: value
            for batch in store.scan(name)
            for key, value in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        }
        assert found == rows, f"a scan of {name}"
        keys = [*rows, b"key-", b"nothing", b"z" * 600]
        values = store.read(name, pa.array(keys, pa.binary())).to_pylist()
        assert values == [rows.get(key) for key in keys], f"keys of {name}"
        pairs = StoreReader.of(store).read(name, lambda snapshot: snapshot.between(), committed=UNCOMMITTED)
        assert dict(zip(*(column.to_pylist() for column in pairs.columns), strict=True)) == rows, f"a query of {name}"


def opened_after(path: Path, history: History) -> None:
    """Open a store that was damaged while nobody had it open."""
    store = TaskStore.open(path, in_worker=True)
    try:
        header = store.header
        moment = header.batch, header.next_journal, tuple((entry.leg, entry.batch) for entry in header.journals)
        store.opened_by("the next")
        assert store.read_through(lambda: False)
        require_right(store, history.snapshots[moment])
        store.take_over(2)
        before = [
            held for (batch, _, journals), held in history.snapshots.items() if (batch, journals) == (moment[0], ())
        ]
        if before:
            require_right(store, before[-1])
    finally:
        store.close(clean=False)


def damaged_while_open(path: Path, history: History, random_: random.Random) -> None:
    """Damage a store that is open; go on with it, and have all of it read."""
    store = TaskStore.open(path, in_worker=True)
    going_on = History.__new__(History)
    going_on.path, going_on.store, going_on.batch, going_on.snapshots = path, store, history.batch, {}
    going_on.held = {name: dict(rows) for name, rows in history.held.items()}
    try:
        assert store.header.batch == history.batch - 1
        turn_bits(path / DATA_FILE, random_)
        for name in STORES:
            going_on.apply(name, changes_of(random_, 20))
        store.opened_by("the next")
        assert store.read_through(lambda: False)
        require_right(store, going_on.held)
    finally:
        store.close(clean=False)


def tried(seed: int, template: Path, work: Path, history: History) -> str:
    random_ = random.Random(seed)
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(template, work)
    where = ""
    try:
        if seed % 3:
            where = turn_bits(work / DATA_FILE, random_)
            opened_after(work, history)
        else:
            damaged_while_open(work, history, random_)
    except StoreCorruptedException:
        return "found"
    except StateStoreException as error:
        return f"refused: {error}"
    except AssertionError as error:
        return f"WRONG: {where}: {error}"
    return "right"


def main(home: Path, first: int, last: int) -> None:
    template = home / "template" / "0_0"
    shutil.rmtree(template, ignore_errors=True)
    history = build(template)
    history.store.close(clean=False)
    for seed in range(first, last):
        print("begin", seed, flush=True)
        print("end", seed, tried(seed, template, home / "work" / "0_0", history), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
