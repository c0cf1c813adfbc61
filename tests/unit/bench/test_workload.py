import json
from types import SimpleNamespace

import numpy as np
import pytest
from bench.feed import Feed
from bench.results import check_totals
from bench.workload import PARTITIONS, Workload, json_values

from sparkrelay.records.partition import murmur2_partitions

SMALL = Workload(records=4000, keys=100, passes=2)


def test_users_are_where_javas_partitioner_puts_them_equally_many():
    users = SMALL.users()
    assert [len(names) for names in users] == [25] * PARTITIONS
    for partition, names in enumerate(users):
        assert set(murmur2_partitions(names, PARTITIONS).tolist()) == {partition}


def test_expected_totals_are_those_of_the_json_that_is_written():
    totals = {}
    sizes = []
    for users, quarters, actions in SMALL.columns():
        for text in json_values(users, quarters, actions, 1_000_000).to_pylist() * SMALL.passes:
            record = json.loads(text)
            sizes.append(len(text))
            if record["action"] != "view":
                orders, total = totals.get(record["user"], (0, 0.0))
                totals[record["user"]] = (orders + 1, total + record["amount"])
    assert totals == SMALL.expected()
    assert 90 < np.mean(sizes) < 110


def test_columns_are_the_same_each_time():
    first, again = (list(SMALL.columns()) for _ in range(2))
    assert all(
        a[0].equals(b[0]) and (a[1] == b[1]).all() and (a[2] == b[2]).all() for a, b in zip(first, again, strict=True)
    )


@pytest.mark.parametrize("field", ["records", "keys"])
def test_sizes_that_partitions_cannot_share_are_refused(field):
    with pytest.raises(ValueError, match=f"{field}=1001"):
        Workload(**{field: 1001})


def test_a_wrong_total_is_named():
    with pytest.raises(RuntimeError, match=r"2 of 2 users differ \(a: \(1, 2.0\) instead of \(1, 1.0\), b: None"):
        check_totals("run", {"a": (1, 1.0), "b": (1, 1.0)}, {"a": (1, 2.0)})
    check_totals("run", {"a": (1, 1.0)}, {"a": (1, 1.0)})


def test_feed_uses_every_key_and_every_action():
    feed = Feed("127.0.0.1:1", "nowhere", rate=1, keys=100)
    sent = []
    feed._producer = SimpleNamespace(produce=lambda *_, value, **__: sent.append(json.loads(value)))
    for number in range(800):
        feed._send(number)
    assert {record["user"] for record in sent} == {f"u{number:06d}" for number in range(100)}
    kept = [record for record in sent if record["action"] != "view"]
    assert len(kept) == 600
    assert sum(feed.counts.values()) == 600
    assert sum(feed.sums.values()) == sum(record["amount"] for record in kept)


def test_feed_of_lookups_remembers_the_number_of_each_record():
    feed = Feed("127.0.0.1:1", "nowhere", rate=1, keys=100, every=True)
    feed._producer = SimpleNamespace(produce=lambda *_, **__: None)
    feed.remember()
    for number in range(200):
        feed._send(number)
    assert sorted(n for sent in feed.unseen.values() for n, _ in sent) == list(range(200))
    assert set(feed.counts.values()) == {2}
