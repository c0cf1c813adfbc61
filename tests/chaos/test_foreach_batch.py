"""The instance dies between a function of foreachBatch and the commit, again and again: the same batches come again.

The database knows them by number, and has each row once in the end.
"""

import contextlib
import datetime as dt
import json
import sqlite3
from collections import Counter, defaultdict

import pytest
from tests.chaos.instances import Succession
from tests.waiting import LONG

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.timeout(1800)]

PARTITIONS = 2
#: Right behind the functions, and right before the commit is decided.
POINTS = ("driver-before-commit", "driver-before-end-txn", "driver-before-job")
BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Sink:
    """The database, and what must be in it."""

    def __init__(self, path):
        self.path = path
        with self.open() as database:
            database.execute("CREATE TABLE calls (app TEXT, task TEXT, batch INTEGER, rows TEXT)")
            database.execute("CREATE TABLE ledger (app TEXT, batch INTEGER, PRIMARY KEY (app, batch))")
            for kind in ("plain", "totals", "windows"):
                database.execute(f"CREATE TABLE {kind} (row TEXT)")
        self.records = []

    @contextlib.contextmanager
    def open(self):
        database = sqlite3.connect(self.path, timeout=LONG)
        with contextlib.closing(database), database:
            yield database

    def rows(self, kind):
        with self.open() as database:
            return [json.loads(row) for (row,) in database.execute(f"SELECT row FROM {kind}")]

    def calls(self):
        """Return what every call got: (function and task, number) -> the rows of each call."""
        found = defaultdict(list)
        with self.open() as database:
            for app, task, batch, rows in database.execute("SELECT * FROM calls"):
                assert app.endswith(f"/{task}")
                found[app, batch].append(rows)
        return found

    def new_records(self, count):
        """Return records that are new, for both topics in turn."""
        made = []
        for _ in range(count):
            id_ = len(self.records)
            at = BEGIN + dt.timedelta(milliseconds=200 * id_)
            order = {"id": id_, "amount": id_ % 7, "at": at.isoformat()}
            self.records.append((f"u{id_ % 9}", order))
            made.append(self.records[-1])
        return made[::2], made[1::2]


@pytest.fixture
def sink(tmp_path):
    return Sink(str(tmp_path / "sink.db"))


@pytest.mark.long
@pytest.mark.parametrize("kills", [2, 30])
def test_every_row_is_in_the_database_once(kills, sink, kafka, make_topic, produce, tmp_path, wait_until):
    topics = {"orders": make_topic("orders", PARTITIONS), "returns": make_topic("returns", PARTITIONS)}

    def write():
        orders, returns = sink.new_records(60)
        produce(topics["orders"], orders)
        produce(topics["returns"], returns)

    given = {**topics, "database": sink.path}
    with contextlib.closing(Succession(tmp_path, kafka, "foreach_batch_instance.py", given)) as instances:
        for kill in range(kills):
            write()
            instances.die_at(POINTS[0] if kill % 3 else POINTS[kill // 3 % len(POINTS)], 1 + kill % 3)
        write()
        instance = instances.last()
        ids = list(range(len(sink.records)))
        wait_until(
            lambda: not instance.alive or sorted(row[0] for row in sink.rows("plain")) == ids,
            f"not each row once: {instance.tail()}",
            300,
        )
        last = max(order["at"] for _, order in sink.records)
        before = dt.datetime.fromisoformat(last) - dt.timedelta(seconds=12)
        assert instance.alive, instance.tail()
        expected = Counter(
            (user, at.timestamp() // 5 * 5)
            for user, order in sink.records
            if (at := dt.datetime.fromisoformat(order["at"])) < before - dt.timedelta(seconds=5)
        )
        wait_until(lambda: expected <= Counter({(u, s): n for u, s, n in sink.rows("windows")}), "windows that ended")
        assert instance.stop() == "stopped NOT_RUNNING"
    calls = sink.calls()
    again = {key: rows for key, rows in calls.items() if len(rows) > 1}
    assert again, "no batch came again"
    assert {key: rows for key, rows in again.items() if len(set(rows)) > 1} == {}, "with other rows"
    for user in {user for user, _ in sink.records}:
        amounts = [order["amount"] for name, order in sink.records if name == user]
        assert max(row[1:] for row in sink.rows("totals") if row[0] == user) == [len(amounts), sum(amounts)]
    windows = sink.rows("windows")
    assert len({(user, start) for user, start, _ in windows}) == len(windows), "a window ended twice"
