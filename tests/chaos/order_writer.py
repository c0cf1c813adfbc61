"""Producers that write orders to one topic all the time, and know which partition each of them went to."""

import itertools
import json
import threading
from collections import defaultdict
from contextlib import contextmanager

from tests.waiting import LONG

USERS_OF_A_PRODUCER = 9
#: How often each producer asks how many partitions there are: one learns of new ones long after the other.
REFRESH_MS = (200, 3000)
_AT_A_TIME, _PAUSE_SECONDS = 3, 0.05


class Orders:
    """All orders that were written, to whichever topic.

    Attributes:
        partitions: order -> the partition that it went to; in the order in which they were acknowledged.
    """

    def __init__(self):
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        #: User -> its orders, in the order in which they were written.
        self._of = defaultdict(list)
        self.partitions = {}

    def new(self, user):
        """Return the number of a new order."""
        with self._lock:
            id_ = next(self._ids)
            self._of[user].append(id_)
            return id_

    @property
    def last(self):
        """The newest order's number, while nobody writes."""
        return max(map(max, self._of.values()), default=0)

    @property
    def ids(self):
        """All of their numbers, as far as they were acknowledged."""
        with self._lock:
            return [id_ for ids in self._of.values() for id_ in ids if id_ in self.partitions]

    def totals(self, user, after=0):
        """Return the sums of the user's first orders, of none and more, that are newer than one."""
        with self._lock:
            return list(itertools.accumulate((id_ for id_ in self._of[user] if id_ > after), initial=0))

    def newest(self, after=0):
        """Return user -> how many orders it has and their sum, of those that are newer than one."""
        totals = {user: self.totals(user, after) for user in list(self._of)}
        return {user: (len(sums) - 1, sums[-1]) for user, sums in totals.items() if len(sums) > 1}


@contextmanager
def writing(servers, topic, orders):
    """Write orders to a topic, with two producers, until the body ends and all are acknowledged."""
    stop, failed = threading.Event(), []
    threads = [
        threading.Thread(target=_write, args=(servers, topic, orders, number, refresh_ms, stop, failed))
        for number, refresh_ms in enumerate(REFRESH_MS)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failed, failed[:3]


def _write(servers, topic, orders, number, refresh_ms, stop, failed):
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "linger.ms": 1,
            "topic.metadata.refresh.interval.ms": refresh_ms,
        }
    )
    users = itertools.cycle([f"u{number}-{user}" for user in range(USERS_OF_A_PRODUCER)])

    def delivered(id_, error, message):
        if error:
            failed.append(error)
        else:
            orders.partitions[id_] = message.partition()

    while not stop.wait(_PAUSE_SECONDS):
        for user in itertools.islice(users, _AT_A_TIME):
            id_ = orders.new(user)
            value = json.dumps({"id": id_})
            producer.produce(topic, value, user, on_delivery=lambda *answer, id_=id_: delivered(id_, *answer))
        producer.poll(0)
    if producer.flush(LONG):
        failed.append(f"not all orders were acknowledged within {LONG} s")
