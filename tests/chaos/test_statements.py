"""Instances die while they run aggregates over frames, and join tables by columns that are no keys."""

import contextlib
import datetime as dt
import json
import random
from collections import defaultdict

import pytest
from tests.chaos.instances import Succession

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.timeout(1800)]

POINTS = ("state-after-apply", "driver-before-commit", "driver-before-end-txn", "driver-after-end-txn")
TOPICS = ("orders", "people", "shops", "running", "near", "older")
BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
USERS = [f"u{number}" for number in range(7)]
#: Seconds of event time in a round, and of an interval.
ROUND, INTERVAL = 40, 10


class Rows:
    """The orders, people and shops so far, and what must be made of them."""

    def __init__(self):
        self._random = random.Random(0)
        self._orders = []
        self._rounds = 0
        self.people, self.shops = {}, {}

    def orders(self):
        """Return the next round's orders, in any order; no two have one time."""
        times = self._random.sample(range(ROUND * 100), 60)
        made = [
            (self._random.choice(USERS), len(self._orders) + number, self._random.randrange(100), time)
            for number, time in enumerate(times)
        ]
        made = [(user, id_, n, self._rounds * ROUND + time / 100) for user, id_, n, time in made]
        self._orders += made
        self._rounds += 1
        return [order(*one) for one in made]

    def closing(self):
        """Return an order of each user that is so late that all others can be given out."""
        return [order(user, -1, 0, (self._rounds + 10) * ROUND) for user in USERS]

    def changes(self, table, what):
        """Return people or shops that come, change and go."""
        for _ in range(12):
            id_, city = f"{what}-{self._random.randrange(9)}", self._random.choice(["Rome", "Oslo", "Lima"])
            row = None if self._random.random() < 0.2 else {"city": city, what: self._random.randrange(50)}
            if row is None:
                table.pop(id_, None)
            else:
                table[id_] = row
            yield id_, row

    def running(self):
        """Return each order's user, total, previous order and the sum of an interval, by its id."""
        made, by_user = {}, defaultdict(list)
        for user, id_, n, time in sorted(self._orders, key=lambda one: one[3]):
            earlier = by_user[user]
            earlier.append((id_, n, time))
            total = sum(n for _, n, _ in earlier)
            recent = sum(n for _, n, at in earlier if at >= round(time - INTERVAL, 2))
            made[id_] = user, total, earlier[-2][0] if len(earlier) > 1 else None, recent
        return made

    def near(self):
        """Return the pairs of people and shops of one city, and who is alone."""
        pairs = [
            (id_, shop, one["age"], other["size"])
            for id_, one in self.people.items()
            for shop, other in self.shops.items()
            if one["city"] == other["city"]
        ]
        people, shops = {pair[0] for pair in pairs}, {pair[1] for pair in pairs}
        pairs += [(id_, None, one["age"], None) for id_, one in self.people.items() if id_ not in people]
        pairs += [(None, shop, None, one["size"]) for shop, one in self.shops.items() if shop not in shops]
        return sorted(pairs, key=str)

    def older(self):
        """Return the people who are older than shops are large, on average."""
        sizes = [one["size"] for one in self.shops.values()]
        return {id_: one["age"] for id_, one in self.people.items() if sizes and one["age"] > sum(sizes) / len(sizes)}


def order(user, id_, n, second):
    return user, {"id": id_, "n": n, "at": (BEGIN + dt.timedelta(seconds=second)).isoformat()}


@pytest.mark.long
@pytest.mark.parametrize("kills", [2, 24])
def test_frames_and_joins_are_exact(kills, kafka, make_topic, produce, consumed, tmp_path, wait_until):
    topics = {name: make_topic(name, 2) for name in TOPICS}
    rows = Rows()

    def write():
        produce(topics["orders"], rows.orders())
        produce(topics["people"], [*rows.changes(rows.people, "age")])
        produce(topics["shops"], [*rows.changes(rows.shops, "size")])

    def running():
        return [row for *_, value in consumed(topics["running"]) if (row := json.loads(value))["id"] >= 0]

    def table(name):
        last = {key: value for *_, key, value in consumed(topics[name])}
        return [json.loads(value) for value in last.values() if value is not None]

    def near():
        found = [[row.get(name) for name in ("id", "shop", "age", "size")] for row in table("near")]
        return sorted(map(tuple, found), key=str)

    def older():
        return {row["id"]: row["age"] for row in table("older")}

    with contextlib.closing(Succession(tmp_path, kafka, "statement_instance.py", topics)) as instances:
        instances.die_in_turn(POINTS, kills, write)
        write()
        produce(topics["orders"], rows.closing())
        last = instances.last()
        wanted = rows.running()
        wait_until(
            lambda: (
                not last.alive or (len(running()) >= len(wanted) and near() == rows.near() and older() == rows.older())
            ),
            lambda: f"{len(running())} of {len(wanted)}, {near()} of {rows.near()}, {older()}: {last.tail()}",
            300,
        )
        assert last.alive, last.tail()
        assert last.stop() == "stopped NOT_RUNNING"
    found = running()
    assert len(found) == len(wanted)
    assert {row["id"]: (row["user"], row["total"], row.get("before"), row["recent"]) for row in found} == wanted
    assert near() == rows.near()
    assert older() == rows.older()
