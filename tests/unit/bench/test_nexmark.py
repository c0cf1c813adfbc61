import json
from collections import Counter
from itertools import islice, pairwise

import pytest
from bench.nexmark.check import closing_events, stamped
from bench.nexmark.compare import Answer, differences, newest
from bench.nexmark.events import SCHEMAS, channel_and_url, generated, parsed
from bench.nexmark.queries import QUERIES

LINES = [
    '{"type":"person","at":1000,"id":1000,"name":"Ada","dateTime":1000}',
    '{"type":"auction","at":1010,"id":1000,"seller":1000,"expires":2000,"category":10}',
    '{"type":"bid","at":1020,"auction":1000,"bidder":1000,"price":5,"dateTime":1020,"extra":"a\\\\b"}',
    '{"type":"bid","at":1030,"auction":1000,"bidder":1000,"price":5,"channel":"C","url":"U","dateTime":1030}',
]


def test_lines_become_events_with_their_number_and_time():
    person, auction, bid, other = parsed(LINES)
    assert (person["type"], person["number"], person["name"]) == ("person", 0, "Ada")
    assert auction["dateTime"] == 1010
    assert bid["extra"] == "a\\b"
    assert (bid["channel"], bid["url"]) == channel_and_url(2)
    assert (other["channel"], other["url"], other["number"]) == ("C", "U", 3)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no json", "line 2 is no event"),
        ("[]", "line 2 is no event"),
        ('{"at": 1}', "line 2 is no event.*'type'"),
        ('{"type": "sale", "at": 1}', "line 2: type='sale' must be one of person, auction, bid"),
        ('{"type": "bid", "at": "noon"}', "line 2: .* at='noon' a number"),
    ],
)
def test_a_line_that_is_no_event_is_named(line, message):
    with pytest.raises(ValueError, match=message):
        list(parsed([LINES[0], line]))


def test_channels_are_hot_half_of_the_time_and_urls_have_three_parts():
    found = [channel_and_url(number) for number in range(5000)]
    assert found[:10] == [channel_and_url(number) for number in range(10)]
    channels = Counter(channel for channel, _ in found)
    hot = {"Google", "Facebook", "Baidu", "Apple"}
    assert {channel for channel, _ in channels.most_common(4)} == hot
    assert 2300 < sum(channels[channel] for channel in hot) < 2700
    assert len(channels) > 1500
    said = [f"channel_id={channel[8:]}" in url for channel, url in found if channel not in hot]
    assert 0.85 < sum(said) / len(said) < 0.95
    for _, url in found:
        scheme, nothing, host, *path = url.split("/")
        assert (scheme, nothing, host, len(path)) == ("https:", "", "www.nexmark.com", 4)
        assert path[3].startswith("item.htm?query=1")


def test_the_same_arguments_give_the_same_events():
    assert list(generated(500, seed=3)) == list(generated(500, seed=3))
    assert list(generated(500, seed=3)) == list(islice(generated(900, seed=3), 500))
    assert list(generated(500, seed=3)) != list(generated(500, seed=4))


def test_generated_events_have_nexmarks_shape():
    events = list(generated(5000, seed=1))
    kinds = Counter(event["type"] for event in events)
    assert kinds == {"person": 100, "auction": 300, "bid": 4600}
    fields = {kind: {field.split()[0] for field in schema.split(", ")} for kind, schema in SCHEMAS.items()}
    assert all(event.keys() == fields[event["type"]] | {"type", "at", "number"} for event in events)
    assert list(parsed(map(json.dumps, events))) == events
    times = [event["at"] for event in events]
    assert times != sorted(times)
    assert all(0 <= newest["arrived"] - newest["at"] < 1000 for newest in stamped(events))
    opened = {event["id"]: event for event in events if event["type"] == "auction"}
    bids = [event for event in events if event["type"] == "bid"]
    assert Counter(bid["auction"] for bid in bids).most_common(1)[0][1] > 10
    known = [bid for bid in bids if bid["auction"] in opened]
    assert any(bid["number"] < opened[bid["auction"]]["number"] for bid in known)
    assert {bid["dateTime"] <= opened[bid["auction"]]["expires"] for bid in known} == {True, False}
    assert {event["category"] for event in opened.values()} == {10, 11, 12, 13, 14}


def test_closing_events_are_later_than_all_and_reach_every_column():
    rounds = list(closing_events(5000))
    assert all(0 < after[0]["at"] - before[0]["at"] < 10_000 for before, after in pairwise([[{"at": 5000}], *rounds]))
    assert rounds[-1][0]["at"] > 5000 + 40_000
    for events in rounds:
        assert {event["type"] for event in events} == set(SCHEMAS)
        assert {event["id"] for event in events if "id" in event} == set(range(-16, 0))


def test_every_query_has_words_and_sql():
    assert list(QUERIES) == [f"q{number}" for number in range(24)]
    for query in QUERIES.values():
        assert len(query.words.split()) > 5
        assert "SELECT" in query.truth


WANTED = Answer(("k", "n", "x"), frozenset({"x"}), [{"k": "a", "n": 1, "x": 0.3}, {"k": "b", "n": None, "x": None}])


def test_answers_are_equal_whatever_their_order():
    found = [{"k": "b"}, {"k": "a", "n": 1, "x": 0.1 + 0.2}]
    assert differences(found, WANTED) == []
    twice = Answer(WANTED.columns, WANTED.inexact, [*WANTED.rows, *WANTED.rows])
    assert differences(found * 2, twice) == []


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        ([{"k": "a", "n": 1, "x": 0.3}], ["1 rows where SQL has 2", "[k='b', n=None] 0 times where SQL has x=None"]),
        (
            [{"k": "a", "n": 1, "x": 0.31}, {"k": "b"}],
            ["[k='a', n=1] x=0.31 where SQL has x=0.3"],
        ),
        (
            [{"k": "a", "n": "1", "x": 0.3}, {"k": "b"}],
            ["[k='a', n='1'] x=0.3 where SQL has 0 times", "[k='a', n=1] 0 times where SQL has x=0.3"],
        ),
        ([{"k": "b", "x": 0}, {"k": "a", "n": 1, "x": 0.3}], ["[k='b', n=None] x=0 where SQL has x=None"]),
        ([{"k": "a", "m": 1}], ["there are columns that SQL has not: m"]),
    ],
)
def test_differences_are_shown(found, shown):
    assert differences(found, WANTED) == shown


def test_rows_that_come_too_often_are_counted():
    wanted = Answer(("k",), frozenset(), [{"k": "a"}, {"k": "b"}])
    assert differences([{"k": "a"}, {"k": "a"}], wanted) == [
        "[k='a'] 2 times where SQL has 1 times",
        "[k='b'] 0 times where SQL has 1 times",
    ]


def test_no_more_than_the_first_differences_are_shown():
    wanted = Answer(("k",), frozenset(), [{"k": number} for number in range(100)])
    assert len(differences([], wanted)) == 4


def test_a_table_has_the_last_row_of_each_key_that_was_not_deleted():
    records = [(b"a", {"n": 1}), (b"b", {"n": 2}), (b"a", {"n": 3}), (b"b", None), (b"c", {"n": 4}), (b"c", None)]
    assert newest([*records, (b"c", {"n": 5})]) == [{"n": 3}, {"n": 5}]
