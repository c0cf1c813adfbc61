"""A ledger that knows what every output must say, after every single order."""

import datetime as dt
import json
import random
import time
from collections import Counter, defaultdict

from tests.topics import read_to_end
from tests.waiting import LONG, wait_until

PARTITIONS = 2
OUTPUTS = ("users", "shops", "marks", "windows", "late", "known", "copies", "evens", "placed", "paid", "visits")
OUTPUTS += ("profiles", "newest", "customers", "best")
#: One order in so many comes with a new version of its user.
ORDERS_A_VERSION = 20
#: An order's event time is that of the one before it and so much more; a window is over once its end is a second ago.
STEP = dt.timedelta(milliseconds=40)
WINDOW, DELAY = dt.timedelta(seconds=5), dt.timedelta(seconds=1)
BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
#: One order in so many is never paid.
ORDERS_A_DEBT = 3
#: A user's payments that follow one another no later than so are one session.
GAP = dt.timedelta(seconds=2)
#: Once windows are over, one order in so many is of before all of them.
ORDERS_A_LATE_ONE = 50
LONG_AGO = BEGIN - dt.timedelta(hours=1)
SILENCE_SECONDS = 30
_AT_A_TIME = 1000


class Ledger:
    """Writes orders, recomputes in plain Python what each output must say, and reads them all, read_committed.

    A user's and a shop's orders come from one partition, so their order is known: of every update `n` it is known what
    its total must be, not only of the last one.
    """

    def __init__(self, kafka, make_topic, seed):
        from confluent_kafka import OFFSET_BEGINNING, Producer

        self.topics = {
            "orders": make_topic("orders", PARTITIONS),
            "users": make_topic("users", 2),
            "shops": make_topic("shops", 2),
            "marks": make_topic("marks", 2),
            "windows": make_topic("windows", 2),
            "late": make_topic("late", 2),
            "people": make_topic("people", PARTITIONS),
            "known": make_topic("known", 2),
            "copies": make_topic("copies", 2),
            "evens": make_topic("evens", 2),
            "places": make_topic("places", 3),
            "placed": make_topic("placed", 2),
            "payments": make_topic("payments", PARTITIONS),
            "paid": make_topic("paid", 2),
            "visits": make_topic("visits", 2),
            "profiles": make_topic("profiles", 2),
            "newest": make_topic("newest", 2),
            "customers": make_topic("customers", 2),
            "best": make_topic("best", 2),
        }
        self._random = random.Random(seed)
        self._id = 0
        self._totals = {"users": defaultdict(lambda: [0]), "shops": defaultdict(lambda: [0])}
        self._marks = Counter()
        #: Window's start, user and partition -> its orders; and of each partition the newest event time.
        self._windows = Counter()
        self._clocks = [BEGIN] * PARTITIONS
        #: Of those windows, the ones that no output has said yet. There are too many to look at all of them each time.
        self._unseen = set()
        #: Partitions of which a window was said to be over; late orders, and those that no output has said yet.
        self._ended = set()
        self._late, self._unsaid = set(), set()
        #: User -> its newest version; order -> its user, and the oldest version that it may find.
        self._versions = Counter()
        self._orders = {}
        self._unknown = set()
        #: Order -> the city of its shop, which a global table has; orders that no output has said yet.
        self._cities = {}
        self._unplaced = set()
        #: Order that is not late -> whether it is paid, its partition and its time; those that no output has said yet;
        #: and the newest event time of each partition's payments.
        self._payments = {}
        self._unpaid = set()
        self._paid_clocks = [BEGIN] * PARTITIONS
        #: User and start of a session -> its partition, its last payment's time, its payments and the sum of their
        #: orders; each user's newest start; and those that no output has said yet.
        self._visits = {}
        self._newest_visits = {}
        self._unseen_visits = set()
        #: User -> the orders and the version that the join of both tables has said last; user -> its orders; and user
        #: and place -> the order that stands there.
        self._profiles = {}
        self._placing = defaultdict(list)
        self._places_seen = {}
        #: Window -> its highest level, and the orders that have it; those of them that were said; and the windows of
        #: which not all were.
        self._best = defaultdict(lambda: (-1, frozenset()))
        self._best_seen = defaultdict(set)
        self._best_unseen = set()
        #: Shop -> its last order and that one's user; and what the join by a foreign key has said of it last, with the
        #: user's last order.
        self._customers = {}
        self._customers_seen = {}
        #: Of the table's copy, and of what a filter lets through of it: user -> version, or None where it is deleted.
        self._seen_versions = {"copies": {}, "evens": {}}
        self._seen = {"users": {}, "shops": {}}
        self._seen_marks = Counter()
        self._seen_windows = set()
        self.updates = 0
        self._servers = kafka.bootstrap_servers
        self._producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True, "linger.ms": 1})
        self._names = {name: hint for hint, name in self.topics.items()}
        #: The next offset of each partition that is read.
        self._next = {(self.topics[hint], p): OFFSET_BEGINNING for hint in OUTPUTS for p in (0, 1)}
        self._read_at = time.monotonic()
        #: Whether there is more to read at once.
        self._behind = False
        self._reader = self._make_reader()
        self._write_places()

    def _write_places(self):
        """Say where every shop is, once and for all: whoever looks finds it, or has looked too early."""
        for shop in (f"shop{partition}-{number}" for partition in range(PARTITIONS) for number in range(9)):
            self._producer.produce(self.topics["places"], json.dumps({"city": f"city of {shop}"}), shop)
        assert self._producer.flush(LONG) == 0

    def _make_reader(self):
        from confluent_kafka import Consumer, TopicPartition

        reader = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "ledger",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                # What comes is answered at once; what does not come is asked for ten times a second.
                "fetch.wait.max.ms": 100,
            }
        )
        reader.assign([TopicPartition(topic, partition, at) for (topic, partition), at in self._next.items()])
        return reader

    def write(self, orders):
        """Produce that many orders and note what they change.

        Versions of users that were written before are in the log when an order is: it finds them or newer ones.
        """
        before = dict(self._versions)
        for _ in range(orders):
            self._id += 1
            partition = self._random.randrange(PARTITIONS)
            user, shop = (f"{kind}{partition}-{self._random.randrange(9)}" for kind in ("user", "shop"))
            amount = self._random.randrange(-50, 200)
            late = partition in self._ended and self._random.randrange(ORDERS_A_LATE_ONE) == 0
            at = LONG_AGO if late else BEGIN + self._id * STEP
            if self._random.randrange(ORDERS_A_VERSION) == 0:
                self._versions[user] += 1
                version = json.dumps({"version": self._versions[user]})
                self._producer.produce(self.topics["people"], version, user, partition=partition)
            self._orders[self._id] = user, before.get(user, 0)
            self._unknown.add(self._id)
            self._placing[user].append(self._id)
            self._customers[shop] = self._id, user
            self._cities[self._id] = f"city of {shop}"
            self._unplaced.add(self._id)
            value = json.dumps({"id": self._id, "shop": shop, "amount": amount, "at": at.isoformat()})
            # Noted first: another thread may be reading what becomes of it.
            for totals in (self._totals["users"][user], self._totals["shops"][shop]):
                totals.append(totals[-1] + amount)
            if amount % 7 == 0:
                self._marks[self._id, "seven"] += 1
            if amount % 11 == 0:
                self._marks[self._id, "eleven"] += 1
            if late:
                self._late.add(self._id)
                self._unsaid.add(self._id)
            else:
                window = at - (at - BEGIN) % WINDOW, user, partition
                self._windows[window] += 1
                self._unseen.add(window)
                level, best = self._best[window]
                if amount % 3 >= level:
                    equal = best if amount % 3 == level else frozenset()
                    self._best[window] = amount % 3, equal | {self._id}
                self._best_unseen.add(window)
                self._clocks[partition] = at
                self._pay(user, partition, at)
            self._producer.produce(self.topics["orders"], value, user, partition=partition)
        assert self._producer.flush(LONG) == 0

    def _pay(self, user, partition, at):
        """Note an order, and write its payment if it gets one, which has the order's own time."""
        paid = self._id % ORDERS_A_DEBT != 0
        self._payments[self._id] = paid, partition, at
        self._unpaid.add(self._id)
        if paid:
            self._visit(user, partition, at)
            self._paid_clocks[partition] = at
            value = json.dumps({"order": self._id, "paid": at.isoformat()})
            self._producer.produce(self.topics["payments"], value, user, partition=partition)

    def _visit(self, user, partition, at):
        """Note a payment, which goes into its user's newest session or begins another."""
        visit = user, self._newest_visits.get(user, at)
        _, last, n, total = self._visits.get(visit, (partition, at, 0, 0))
        if at - last > GAP:
            visit, n, total = (user, at), 0, 0
        self._visits[visit] = partition, at, n + 1, total + self._id
        self._newest_visits[user] = visit[1]
        self._unseen_visits.add(visit)

    @property
    def backlog(self):
        """Orders whose user's update was not seen yet."""
        seen = self._seen["users"]
        return sum(len(totals) - 1 - seen.get(user, 0) for user, totals in self._totals["users"].items())

    def read(self, seconds=0.05):
        """Read what is there and check each update against the one before it.

        A reader that has seen its broker go may not see all that comes later, and a new one does: so after a while
        without anything there is a new one, which goes on where the old one was.
        """
        if time.monotonic() - self._read_at > SILENCE_SECONDS:
            self._reader.close()
            self._reader, self._read_at = self._make_reader(), time.monotonic()
        messages = self._reader.consume(_AT_A_TIME, seconds)
        self._behind = len(messages) == _AT_A_TIME
        for message in messages:
            error = message.error()
            # That the broker is away is for the test to know.
            assert error is None or error.name() in {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT"}, error
            if error is None:
                self._check(self._names[message.topic()], message)
                self._next[message.topic(), message.partition()] = message.offset() + 1
                self._read_at = time.monotonic()

    def read_until(self, condition, complaint, timeout_s=LONG):
        wait_until(condition, complaint, timeout_s, between=self.read)

    def write_and_read_half(self, count, complaint):
        """Write orders and return in the middle of the work: half of what no output has said yet is still to come."""
        self.write(count)
        left = self.backlog // 2
        self.read_until(lambda: self.backlog <= left, complaint)

    def wait_for_results(self, fleet, timeout_s=2 * LONG):
        """Wait until every output has said everything; nothing may be lost, and nothing more may come."""
        # To look for what is missing takes longer than to read more: a slow machine would never come to the end.
        self.read_until(
            lambda: not self._behind and not self.missing(),
            lambda: f"missing: {len(self.missing())}, such as {self.missing()[:5]}\n{fleet.tail()}",
            timeout_s,
        )

    def missing(self):
        """Return what no output has said yet."""
        found = []
        for table, groups in self._totals.items():
            for group, totals in groups.items():
                if self._seen[table].get(group, 0) != len(totals) - 1:
                    found.append(f"{table} {group}: {self._seen[table].get(group, 0)} of {len(totals) - 1}")
        found += [f"mark {mark}" for mark in self._marks - self._seen_marks]
        # A copy: another thread may be writing.
        found += [f"window {window}" for window in self._unseen.copy() if self._is_over(window)]
        found += [f"late order {order}" for order in self._unsaid.copy()]
        versions = self._versions.copy()
        copies, evens = (self._seen_versions[hint] for hint in ("copies", "evens"))
        found += [f"version {newest} of {user}" for user, newest in versions.items() if copies.get(user) != newest]
        found += [
            f"version {newest} of {user}, filtered: {evens.get(user)}"
            for user, newest in versions.items()
            if evens.get(user) != (None if newest % 2 else newest)
        ]
        found += [
            f"profile of {user}: {self._profiles.get(user)}"
            for user, totals in self._totals["users"].items()
            if self._profiles.get(user) != (len(totals) - 1, versions.get(user, 0))
        ]
        found += [
            f"newest orders of {user}: {[self._places_seen.get((user, place)) for place in (1, 2)]}"
            for user, orders in list(self._placing.items())
            if any(self._places_seen.get((user, place)) != orders[-place] for place in (1, 2)[: len(orders)])
        ]
        found += [f"best orders of {window}" for window in self._best_unseen.copy() if self._is_over(window)]
        found += [
            f"last order of {shop}, {order}, of {user}: {self._customers_seen.get(shop)}"
            for shop, (order, user) in self._customers.copy().items()
            if self._customers_seen.get(shop) != (order, user, self._placing[user][-1])
        ]
        found += [f"order {order} with its user's version" for order in self._unknown.copy()]
        found += [f"order {order} with its shop's city" for order in self._unplaced.copy()]
        found += [f"payment of order {order}" for order in self._unpaid.copy() if self._is_joined(order)]
        found += [f"session {visit}" for visit in self._unseen_visits.copy() if self._is_visit_over(visit)]
        return found

    def _is_joined(self, order):
        """Return whether the join must have said an order by now: one without payment once both streams are beyond."""
        paid, partition, at = self._payments[order]
        return paid or at + DELAY < min(self._clocks[partition], self._paid_clocks[partition])

    def _is_visit_over(self, visit):
        partition, last, *_ = self._visits[visit]
        return last + GAP + DELAY <= self._paid_clocks[partition]

    def _is_over(self, window):
        start, _, partition = window
        return start + WINDOW + DELAY <= self._clocks[partition]

    def read_again(self):
        """Read every output once more from its beginning, as a reader who comes late; all must be said by its end."""
        self._seen = {"users": {}, "shops": {}}
        self._seen_marks.clear()
        self._seen_windows.clear()
        self._unseen = set(self._windows)
        self._best_seen.clear()
        self._best_unseen = set(self._best)
        self._unknown = set(self._orders)
        self._unplaced = set(self._cities)
        self._unpaid = set(self._payments)
        self._unseen_visits = set(self._visits)
        self._unsaid = set(self._late)
        for seen in (*self._seen_versions.values(), self._profiles, self._places_seen, self._customers_seen):
            seen.clear()
        for hint in OUTPUTS:
            for message in read_to_end(self._servers, self.topics[hint]):
                self._check(hint, message)
        assert not self.missing(), f"missing: {self.missing()[:5]}: is a transaction still open?"

    def _check(self, table, message):
        self.updates += 1
        if table in self._seen_versions:
            self._check_version(table, message)
            return
        row = json.loads(message.value())
        if table == "marks":
            mark = row["id"], row["why"]
            self._seen_marks[mark] += 1
            assert self._seen_marks[mark] <= self._marks[mark], f"order {mark} came {self._seen_marks[mark]} times"
            return
        if table == "windows":
            partition = int(row["user"].removeprefix("user").partition("-")[0])
            window = dt.datetime.fromisoformat(row["window"]["start"]), row["user"], partition
            assert self._is_over(window), f"window {window} is not over: {row}"
            assert window not in self._seen_windows, f"window {window} came twice: {row}"
            assert row["n"] == self._windows[window], f"window {window} has {self._windows[window]} orders: {row}"
            self._ended.add(partition)
            self._seen_windows.add(window)
            self._unseen.discard(window)
            return
        if table == "best":
            partition = int(row["user"].removeprefix("user").partition("-")[0])
            window = dt.datetime.fromisoformat(row["window"]["start"]), row["user"], partition
            _, orders = self._best[window]
            assert self._is_over(window), f"window {window} is not over: {row}"
            assert row["id"] in orders, f"the best orders of window {window} are {sorted(orders)}: {row}"
            assert row["id"] not in self._best_seen[window], f"order {row['id']} came twice: {row}"
            self._best_seen[window].add(row["id"])
            if self._best_seen[window] == orders:
                self._best_unseen.discard(window)
            return
        if table == "late":
            assert row["id"] in self._late, f"an order is late that is not: {row}"
            assert row["id"] in self._unsaid, f"late order {row['id']} came twice: {row}"
            self._unsaid.discard(row["id"])
            return
        if table == "known":
            user, oldest = self._orders[row["id"]]
            assert row["id"] in self._unknown, f"order {row['id']} came twice: {row}"
            version = row.get("version") or 0
            newest = self._versions[user]
            assert oldest <= version <= newest, f"{row}: {user} had version {oldest} before, and has {newest} now"
            self._unknown.discard(row["id"])
            return
        if table == "placed":
            assert row["id"] in self._unplaced, f"order {row['id']} came twice: {row}"
            assert row.get("city") == self._cities[row["id"]], f"{row}: it is {self._cities[row['id']]}"
            self._unplaced.discard(row["id"])
            return
        if table == "paid":
            assert row["id"] in self._unpaid, f"order {row['id']} came twice: {row}"
            expected = row["id"] if self._payments[row["id"]][0] else None
            assert row.get("order") == expected, f"{row}: its payment is {expected}"
            self._unpaid.discard(row["id"])
            return
        if table == "visits":
            start, end = (dt.datetime.fromisoformat(row["visit"][name]) for name in ("start", "end"))
            visit = row["user"], start
            assert visit in self._visits, f"no session of {row['user']} begins then: {row}"
            assert visit in self._unseen_visits, f"session {visit} came twice: {row}"
            assert self._is_visit_over(visit), f"session {visit} is not over: {row}"
            _, last, n, total = self._visits[visit]
            assert (end, row["n"], row["total"]) == (last + GAP, n, total), f"{row}: {n} payments until {last}: {total}"
            self._unseen_visits.discard(visit)
            return
        if table == "profiles":
            user, said = row["user"], (row["n"], row.get("version") or 0)
            before = self._profiles.get(user, (0, 0))
            assert all(map(int.__le__, before, said)), f"{row} came after {before}: one side went back"
            totals = self._totals["users"][user]
            assert said[0] < len(totals), f"{row}: only {len(totals) - 1} orders were written"
            assert row["total"] == totals[said[0]], f"{row}: the first {said[0]} orders make {totals[said[0]]}"
            assert said[1] <= self._versions[user], f"{row}: {self._versions[user]} versions were written"
            self._profiles[user] = said
            return
        if table == "customers":
            order, user, last = row["id"], row["user"], row.get("last")
            assert self._orders[order][0] == user, f"{row}: order {order} is of {self._orders[order][0]}"
            assert last is None or last in self._placing[user], f"{row}: it is another user's order"
            self._customers_seen[row["shop"]] = order, user, last
            return
        if table == "newest":
            place = row["user"], row["place"]
            assert row["id"] in self._placing[row["user"]], f"{row}: it is another user's order"
            assert row["id"] >= self._places_seen.get(place, 0), f"{row} came after {self._places_seen[place]}"
            self._places_seen[place] = row["id"]
            return
        group = row[table[:-1]]
        n, before, totals = row["n"], self._seen[table].get(group, 0), self._totals[table][group]
        where = f"{message.topic()}-{message.partition()}@{message.offset()}"
        assert message.key() == group.encode(), f"{where}: key {message.key()} of {row}"
        assert n > before, f"{where}: {group} says n={n} after n={before}: an update came twice, or out of order"
        assert n < len(totals), f"{where}: {group} says n={n}, but only {len(totals) - 1} orders were written"
        assert row["total"] == totals[n], f"{where}: {group} says {row}, its first {n} orders make {totals[n]}"
        self._seen[table][group] = n

    def _check_version(self, table, message):
        user, seen = message.key().decode(), self._seen_versions[table]
        before = seen.get(user)
        version = None if message.value() is None else json.loads(message.value())["version"]
        where = (
            f"{message.topic()}-{message.partition()}@{message.offset()}: {user} has version {version} after {before}"
        )
        if version is None:
            assert table == "evens", f"{where}: nobody has deleted it"
            assert before is not None, f"{where}: what is not there is deleted"
        else:
            assert version > (before or 0), f"{where}: an update came twice, or out of order"
            assert version <= self._versions[user], f"{where}: {self._versions[user]} were written"
            assert table == "copies" or version % 2 == 0, f"{where}: the filter does not let it through"
        seen[user] = version

    def close(self):
        self._reader.close()
