"""Instances die while they run a query in SQL and a Structured Streaming script, with and without their disk."""

import contextlib
import datetime as dt
import json
import random
from collections import Counter

import pytest
from tests.chaos.instances import Succession

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.timeout(1800)]

POINTS = ("state-after-apply", "driver-before-commit", "driver-before-end-txn", "driver-after-end-txn")
BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
USERS = [f"u{number}" for number in range(8)]
MEMBERS = USERS[:5]
#: Seconds of event time in a round, and in a window.
ROUND, WINDOW = 40, 5


class Rows:
    """The orders and clicks so far, and what must be made of them."""

    def __init__(self):
        self._random = random.Random(0)
        self._rounds = 0
        self.totals = dict.fromkeys(MEMBERS, (0, 0))
        self.counts = {}

    def orders(self):
        """Return the next orders."""
        for _ in range(50):
            user, n = self._random.choice(USERS), self._random.randrange(100)
            if user in self.totals:
                count, total = self.totals[user]
                self.totals[user] = count + 1, total + n
            yield user, {"n": n, "at": stamp(0)}

    def clicks(self):
        """Return the next round's clicks, in any order, and some records that are no JSON."""
        for _ in range(50):
            user, second, n = self._random.choice(USERS), self._rounds * ROUND + self._random.randrange(ROUND), 1
            key = user, second // WINDOW * WINDOW
            count, total = self.counts.get(key, (0, 0))
            self.counts[key] = count + 1, total + n
            yield None, {"user": user, "at": stamp(second), "n": n}
            if self._random.random() < 0.1:
                yield None, '{"user": "u0", "at": '
        self._rounds += 1

    def closing(self):
        """Return a click of each user that comes so late that all other windows are over."""
        return [(None, {"user": user, "at": stamp((self._rounds + 10) * ROUND), "n": 0}) for user in USERS]


def stamp(second):
    return (BEGIN + dt.timedelta(seconds=second)).isoformat()


@pytest.mark.long
@pytest.mark.parametrize("kills", [2, 24])
def test_queries_and_scripts_are_exact(kills, kafka, make_topic, produce, consumed, tmp_path, wait_until):
    topics = {name: make_topic(name, 2) for name in ("orders", "members", "totals", "clicks", "counts")}
    rows = Rows()
    produce(topics["members"], [(user, {"since": 1}) for user in MEMBERS])

    def write():
        produce(topics["orders"], [*rows.orders()])
        produce(topics["clicks"], [*rows.clicks()])

    def totals():
        found = {}
        for *_, key, value in consumed(topics["totals"]):
            row = json.loads(value)
            found[key.decode()] = row["orders"], row["total"]
        return found

    def counts():
        found = [json.loads(value) for *_, value in consumed(topics["counts"])]
        return Counter((row["user"], row["window"]["start"], row["n"], row["total"]) for row in found)

    settings = {"servers": kafka.bootstrap_servers, **topics}
    with contextlib.closing(Succession(tmp_path, kafka, "front_door_instance.py", settings)) as instances:
        instances.die_in_turn(POINTS, kills, write)
        write()
        produce(topics["clicks"], rows.closing())
        last = instances.last()
        wait_until(
            lambda: not last.alive or (counts().total() >= len(rows.counts) and totals() == rows.totals),
            lambda: f"{totals()} instead of {rows.totals}: {last.tail()}",
            300,
        )
        assert last.alive, last.tail()
        assert last.stop() == "stopped NOT_RUNNING"
    assert totals() == rows.totals
    utc = {(user, second): BEGIN + dt.timedelta(seconds=second) for user, second in rows.counts}
    wanted = Counter(
        (user, utc[user, second].strftime("%Y-%m-%dT%H:%M:%S.000Z"), *made)
        for (user, second), made in rows.counts.items()
    )
    assert counts() == wanted
