"""Topologies as data, which Java's Kafka Streams and we both build; and random ones.

A case is a line of JSON::

    {"name": ..., "spec": [NODE...], "input": [RECORD...], "expected": {"outputs": [...], "stores": {...}}}

Nodes have an ``id`` and, but for the first, the node that they go on from (``of``):

    {"op": "stream", "topic": T}                            a topic of keys (text) and values with the fields of VALUE
    {"op": "filter", "field": F, "is": "<", "than": N}      also > = <>
    {"op": "merge", "with": ID}                             the rows of two streams together
    {"op": "map", "field": F, "left": F, "by": "+", "right": F}     also *
    {"op": "aggregate", "by": "key" or F, "aggs": [["count"], ["sum", F]...], "store": S,
     "window": MS, "grace": MS, "final": true}              with final, what goes on are windows that are over
                                                            "gap" in the place of "window": sessions
    {"op": "table", "topic": T, "store": S}                 a topic as a table, of values with the fields of ROW
    {"op": "to_table", "store": S}                          the newest row of each key: p is its a, q its s
                                                            Both with "history": MS, the rows that each key had
    {"op": "global_table", "topic": T, "store": S, "on": "key" or F}     the same in every process, for lookups by that
    {"op": "lookup", "table": ID, "how": "inner" or "left"} what the table holds for the row's key: p and q; of a global
                                                            table with "on", as there; of a table with a history what it
                                                            held at the row's time, with "grace": MS after waiting
    {"op": "stream_join", "with": ID, "how": "inner", "left" or "outer", "within": MS, "grace": MS}
                                                            by the key; the right stream's fields have RIGHT in front,
                                                            and each stream's have the time of its records, "at"
    {"op": "table_join", "with": ID, "how": "inner", "left" or "outer", "as": PREFIX}
                                                            by the key; the right table's fields have PREFIX in front.
                                                            With "foreign", a field of the left one: by that foreign
                                                            key, whose x, y and z name the right keys k, l and m;
                                                            with "store": S, what is joined is compared, too
    {"op": "regroup", "by": F, "aggs": [["count"], ["sum", F]...], "store": S}
                                                            a table's rows by a field; a group without any is deleted
    {"op": "having", "field": F, "is": ..., "than": N}      of a table: what passes no more is deleted
    {"op": "to", "topic": T}

Records are ``{"topic", "key", "value", "ts"}``; a null value is a tombstone. ``outputs`` has, for each record of the
input, topic -> what came out of it: ``[key, value, timestamp]`` each. ``stores`` has the rows of each store at the end.
Fields that are null are left out, and rows of windows have their ``start``. Those of sessions have the times of their
first and their last record, ``start`` and ``end``; one that is no more, because it has become a part of another, has
nothing else but its group and ``gone``.

Cases of Kafka Streams' own tests (``kafkas_own``) have two more fields. ``batches``, the numbers of records that come
together, is there where each batch is also to be one micro-batch. ``exact`` says whether we write what Kafka Streams
writes, row by row and in its order. Where it is false, Kafka Streams also writes rows that change nothing, and we must
not: a row of a table that stays as it was, and a session's deletion that its next row makes up for; and of joins of
streams, rows that find nothing are compared over the whole run. Their ``expected`` has also ``states``, which are the
stores after each record.

No record could be in a session for one of both and not for the other: see :func:`_disputed`.

No record of a stream join is late: its grace is no less than any record comes behind the newest one of both topics. In
the end both have two records each of a time far ahead, so that all before them is over for both.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FUNCTIONS", "RIGHT", "ROW", "TABLES", "VALUE", "random_case"]

#: The fields of values, as Spark has them.
VALUE: Final = "a long, b long, c long, s string"
#: The fields of a table's values.
ROW: Final = "p long, q string"
#: What makes a table of newest rows.
TABLES: Final = frozenset({"table", "to_table"})
#: Topics of such values.
TABLE_TOPICS: Final = frozenset({"rows", "more", "most"})
FUNCTIONS: Final = ("count", "sum", "min", "max", "avg")
#: In front of the names of a stream join's right fields.
RIGHT: Final = "r"
_NUMBERS: Final = ("a", "b", "c")
#: From one record's time to the next one's: most come in the order of time, some long after they should have.
_STEPS_MS: Final = (0, 1, 5, 400, -2000, 7)
#: The same where rows that come a little late should bring sessions together.
_SESSION_STEPS_MS: Final = (0, 1, 5, 7, 7, -3, -4, -9, 400, -2000)
#: Ahead of every record's time by more than any range or grace.
_FAR_AHEAD_MS: Final = 1_000_000

Json = dict[str, Any]


def random_case(seed: int) -> Json:
    """Return a case without its answer."""
    chosen = random.Random(seed)
    topics = ["in", "also"] if chosen.random() < 0.3 else ["in"]
    spec: list[Json] = [{"op": "stream", "id": number, "topic": topic} for number, topic in enumerate(topics)]
    streams = list(range(len(topics)))

    def add(node: Json) -> int:
        spec.append({"id": len(spec), **node})
        return len(spec) - 1

    joins = len(topics) == 2 and chosen.random() < 0.4
    table = None
    if not joins and chosen.random() < 0.4:
        if len(topics) == 1 or chosen.random() < 0.6:
            topics.append("rows")
            table = add({"op": "table", "topic": "rows", "store": "rows"})
        else:
            table = add({"op": "to_table", "of": streams[1], "store": "rows"})
    history = random.Random(f"history {seed}")
    if table is not None and history.random() < 0.3:
        spec[table]["history"] = history.choice((5, 500, 100_000))
    joined = None if table is None or chosen.random() < 0.4 else _table_joins(chosen, topics, table, add)
    of_topic = {stream: [stream] for stream in streams}
    for _ in range(chosen.randrange(4)):
        family = chosen.choice(list(of_topic.values()))
        family.append(add(_step(chosen, chosen.choice(family))))
        streams.append(family[-1])
    ends: list[int] = []
    if joins:
        ends += [_stream_join(chosen, spec, of_topic, add) for _ in range(chosen.randint(1, 2))]
    elif len(of_topic) > 1:
        # Of two topics: one record that comes by two ways is two for SQL, and one for Kafka Streams' merge.
        one, other = map(chosen.choice, of_topic.values())
        streams.append(add({"op": "merge", "of": one, "with": other}))
        streams.append(add(_step(chosen, streams[-1])))
    everywhere = None
    if not joins and table is None and chosen.random() < 0.3:
        on = chosen.choice(("key", "s"))
        everywhere = add({"op": "global_table", "topic": "everywhere", "store": "everywhere", "on": on})
        for _ in range(chosen.randint(1, 2)):
            of, how = chosen.choice(streams), chosen.choice(("inner", "left"))
            if not any(spec[at]["op"] == "lookup" for at in _before(spec, of)):
                streams.append(add({"op": "lookup", "of": of, "table": everywhere, "how": how, "on": on}))
    if table is not None:
        for _ in range(chosen.randint(1, 2)):
            how = chosen.choice(("inner", "left"))
            looked_into = _having(chosen, table, "p", add) if chosen.random() < 0.3 else table
            streams.append(add({"op": "lookup", "of": 0, "table": looked_into, "how": how}))
            if "history" in spec[table]:
                # Looked into as it is: a filtered one has no history for Kafka Streams.
                spec[streams[-1]]["table"] = table
                if history.random() < 0.4:
                    spec[streams[-1]]["grace"] = min(history.choice((1, 7, 500)), spec[table]["history"])
        if joined is not None:
            add({"op": "to", "of": joined, "topic": "joined-out"})
        if chosen.random() < 0.6 and "history" not in spec[table]:
            # Kafka Streams also writes rows that come late and change no table with a history.
            of = table
            if chosen.random() < 0.5:
                of = _having(chosen, of, "p", add)
            add({"op": "to", "of": of, "topic": "table-out"})
    if table is not None:
        _regroup(random.Random(f"regroup {seed}"), [table] if joined is None else [table, joined], add)
    for number in range(chosen.randint(1, 3)):
        of = ends[number] if number < len(ends) else chosen.choice(streams)
        joined = {spec[at]["how"] for at in _before(spec, of) if spec[at]["op"] == "stream_join"}
        # Rows that have waited for a table have no columns of Kafka's any more, so no time for windows.
        timed = not any(spec[at]["op"] == "lookup" and "grace" in spec[at] for at in _before(spec, of))
        # In an aggregate nobody could see the rows that Kafka Streams sends out alone although they are in a pair.
        if chosen.random() < 0.7 and joined <= {"inner"}:
            of = add(_aggregate(chosen, of, f"store-{number}", ends=len(topics) == 1, windows=timed and not joined))
            if not {"window", "gap"} & spec[of].keys() and chosen.random() < 0.3:
                is_ = chosen.choice("<>")
                of = add({"op": "having", "of": of, "field": "n0", "is": is_, "than": chosen.randrange(-2, 5)})
        add({"op": "to", "of": of, "topic": f"out-{number}"})
    records = _records(chosen, topics)
    if sessions := [node for node in spec if "gap" in node]:
        records = _records_of_sessions(chosen, topics, sessions)
        for node in sessions:
            # What gets through all filters ends what was before it.
            value = _reaching(chosen, spec, node["of"])
            if value is not None:
                at = max(record["ts"] for record in records) + _FAR_AHEAD_MS
                records.append({"topic": "in", "key": "k", "value": value | {"s": "x"}, "ts": at})
    if joins:
        records += _records(chosen, topics)
        _close(chosen, spec, records)
    if any(node["op"] == "lookup" and "grace" in node for node in spec):
        for record in records:
            if record["topic"] == "in" and record["key"] is None:
                # Kafka Streams ends with a NullPointerException at a row without a key that waits.
                record["key"] = "m"
        # No row waits any more.
        at = max(record["ts"] for record in records) + _FAR_AHEAD_MS
        records.append({"topic": "in", "key": "closing", "value": {"a": 0}, "ts": at})
    if everywhere is not None:
        # First of all: it follows its topic by itself, whatever the times say.
        records[:0] = [record | {"topic": "everywhere", "ts": 0} for record in _records(chosen, ["rows"])]
        for record in records:
            if record["topic"] == "everywhere" and spec[everywhere]["on"] == "s" and record["key"] is not None:
                record["key"] = {"k": "x", "l": "y", "m": "z"}[record["key"]]
    return {"name": f"random-{seed}", "spec": _used(spec), "input": records}


def _having(chosen: random.Random, of: int, field: str, add: Callable[[Json], int]) -> int:
    is_ = chosen.choice("<>")
    return add({"op": "having", "of": of, "field": field, "is": is_, "than": chosen.randrange(-3, 4)})


def _table_joins(chosen: random.Random, topics: list[str], table: int, add: Callable[[Json], int]) -> int:
    """Add one or two joins of a table with others, which may be filtered as they may be; return the end of them."""
    at, prefix = table, ""
    for topic in ("more", "most")[: chosen.randint(1, 2)]:
        topics.append(topic)
        other = add({"op": "table", "topic": topic, "store": topic})
        if chosen.random() < 0.4:
            other = _having(chosen, other, "p", add)
        if at == table and chosen.random() < 0.3:
            at = _having(chosen, at, "p", add)
        prefix += RIGHT
        if at == table and chosen.random() < 0.3:
            # What is joined has no further joins: the steps behind it, which drop the foreign key, stand in front.
            how = chosen.choice(("inner", "left"))
            at = add({"op": "table_join", "of": at, "with": other, "how": how, "as": prefix, "foreign": "q"})
            break
        how = chosen.choice(("inner", "left", "outer"))
        at = add({"op": "table_join", "of": at, "with": other, "how": how, "as": prefix})
    return _having(chosen, at, chosen.choice(("p", prefix + "p")), add) if chosen.random() < 0.4 else at


def _regroup(chosen: random.Random, tables: list[int], add: Callable[[Json], int]) -> None:
    """Group a table's rows, as they are or filtered, and perhaps filter the groups."""
    if chosen.random() < 0.5:
        return
    of = chosen.choice(tables)
    if chosen.random() < 0.4:
        of = _having(chosen, of, "p", add)
    functions = chosen.choices((["count"], ["count", "p"], ["sum", "p"], ["avg", "p"]), k=chosen.randint(1, 3))
    end = add({"op": "regroup", "of": of, "by": "q", "aggs": functions, "store": "groups"})
    if chosen.random() < 0.3:
        end = _having(chosen, end, "n0", add)
    add({"op": "to", "of": end, "topic": "groups-out"})


def _before(spec: list[Json], node: int) -> set[int]:
    """Return a node and all that it goes on from."""
    found = {node}
    for name in ("of", "with"):
        if name in spec[node]:
            found |= _before(spec, spec[node][name])
    return found


def _used(spec: list[Json]) -> list[Json]:
    """Leave out what leads to no topic: it is refused, as a step that somebody forgot to use."""
    used: set[int] = set()
    for node in reversed(spec):
        if node["op"] == "to" or node["id"] in used:
            used |= {node["id"], *(node[name] for name in ("of", "with", "table") if name in node)}
    return [node for node in spec if node["id"] in used]


def _step(chosen: random.Random, of: int, numbers: tuple[str, ...] = _NUMBERS) -> Json:
    if chosen.random() < 0.5:
        is_ = chosen.choice(("<", ">", "=", "<>"))
        return {"op": "filter", "of": of, "field": chosen.choice(numbers), "is": is_, "than": chosen.randrange(-3, 4)}
    field, left, right = (chosen.choice(numbers) for _ in range(3))
    return {"op": "map", "of": of, "field": field, "left": left, "by": chosen.choice("+*"), "right": right}


def _stream_join(
    chosen: random.Random, spec: list[Json], of_topic: dict[int, list[int]], add: Callable[[Json], int]
) -> int:
    """Add a join of a stream of each topic, which one of the closing records can reach; return the end of it."""
    sides = [chosen.choice([node for node in of if _reaching(chosen, spec, node)]) for of in of_topic.values()]
    chosen.shuffle(sides)
    within, how = chosen.choice((0, 1, 7, 500, 2000)), chosen.choice(("inner", "left", "outer"))
    end = add({"op": "stream_join", "of": sides[0], "with": sides[1], "how": how, "within": within, "grace": 0})
    if chosen.random() < 0.4:
        # Of one side's fields: a row that has gone out alone is the same in its pairs, which ours.py looks for.
        side = chosen.choice(("", RIGHT))
        end = add(_step(chosen, end, tuple(side + name for name in _NUMBERS)))
    return end


def _close(chosen: random.Random, spec: list[Json], records: list[Json]) -> None:
    """Have no record be late, and all be over in the end: see the module's docstring."""
    newest = late = 0
    for record in records:
        newest = max(newest, record["ts"])
        late = max(late, newest - record["ts"])
    sides = []
    for node in spec:
        if node["op"] == "stream_join":
            # Kafka Streams keeps rows for within, twice, and grace: at the edge, of rows of one time, no longer enough.
            node["grace"] = max(chosen.choice((0, 3, 400)), late + (node["within"] == 0))
            sides += [node["of"], node["with"]]
    for ahead in (1, 2):
        for side in dict.fromkeys(sides):
            topic = next(spec[at]["topic"] for at in _before(spec, side) if spec[at]["op"] == "stream")
            # Keys of their own: they find nothing.
            key, value = {"in": "closing", "also": "ending"}[topic], _reaching(chosen, spec, side)
            records.append({"topic": topic, "key": key, "value": value, "ts": ahead * _FAR_AHEAD_MS})


def _reaching(chosen: random.Random, spec: list[Json], node: int) -> Json | None:
    """Return a value that gets through all filters to a node; None if none is found."""
    drawn = ([chosen.randrange(-9, 10) for _ in _NUMBERS] for _ in range(200))
    # Two filters for one number each let one of 361 through: a record that closes a case must be found.
    for numbers in itertools.chain(drawn, itertools.product(range(-9, 10), repeat=len(_NUMBERS))):
        value = dict(zip(_NUMBERS, numbers, strict=True))
        if _through(spec, node, value):
            return value
    return None


def _through(spec: list[Json], at: int, value: Json) -> Json | None:
    """Return what filters and maps make of a value that has no nulls; None if it does not get through."""
    node = spec[at]
    found = _through(spec, node["of"], value) if "of" in node else dict(value)
    if found is None:
        return None
    if node["op"] == "map":
        left, right = found[node["left"]], found[node["right"]]
        found[node["field"]] = left + right if node["by"] == "+" else left * right
    elif node["op"] == "filter":
        field, than = found[node["field"]], node["than"]
        passes = {"<": field < than, ">": field > than, "=": field == than, "<>": field != than}
        return found if passes[node["is"]] else None
    return found


def _aggregate(chosen: random.Random, of: int, store: str, *, ends: bool, windows: bool = True) -> Json:
    functions = [
        [name] if name == "count" and chosen.random() < 0.5 else [name, chosen.choice(_NUMBERS)]
        for name in chosen.choices(FUNCTIONS, k=chosen.randint(1, 3))
    ]
    node = {"op": "aggregate", "of": of, "by": chosen.choice(("key", "s")), "aggs": functions, "store": store}
    if not windows or chosen.random() < 0.5:
        return node
    node["window"] = chosen.choice((10, 1000))
    # Which of two topics comes first decides what is late.
    if ends and chosen.random() < 0.7:
        node |= {"grace": chosen.choice((0, 3, 400)), "final": chosen.random() < 0.5}
        if chosen.random() < 0.5:
            del node["window"]
            node["gap"] = chosen.choice((1, 5, 10, 500))
    return node


def _disputed(records: list[Json], node: Json) -> bool:
    """Return whether a record that comes late may be in a session for one of both and not for the other.

    A record whose own session would be over may touch one that is open: for Kafka Streams it belongs there. One whose
    own session is open may touch one that is over: for Kafka Streams that one goes on. Said by all records' times,
    whatever their groups.
    """
    gap, reaches = node["gap"], node["gap"] + node["grace"]
    newest = 0
    for number, record in enumerate(records):
        at = record["ts"]
        newest = max(newest, at)
        before = [other["ts"] for other in records[:number] if abs(other["ts"] - at) <= gap]
        if at + reaches < newest:
            if any(other > at for other in before):
                return True
        elif any(other + reaches < newest for other in before):
            return True
    return False


def _records_of_sessions(chosen: random.Random, topics: list[str], sessions: list[Json]) -> list[Json]:
    """Return records that are in the same sessions for both; half of the time in the order of their times."""
    ordered = chosen.random() < 0.5
    while True:
        records = _records(chosen, topics, steps=_SESSION_STEPS_MS, count=chosen.randint(12, 30))
        for record in records:
            if record["value"] is not None and chosen.random() < 0.6:
                # Groups of many rows.
                record["key"], record["value"]["s"] = "k", "x"
        if ordered:
            # Then all ways to cut them are compared.
            records.sort(key=lambda record: int(record["ts"]))
        if not any(_disputed(records, node) for node in sessions):
            return records


def _records(
    chosen: random.Random, topics: list[str], *, steps: tuple[int, ...] = _STEPS_MS, count: int | None = None
) -> list[Json]:
    records, now = [], chosen.randrange(3000)
    for _ in range(chosen.randint(4, 14) if count is None else count):
        now = max(now + chosen.choice(steps), 0)
        topic = chosen.choice(topics)
        numbers, text = ("p", "q") if topic in TABLE_TOPICS else (_NUMBERS, "s")
        value = {name: chosen.randrange(-4, 9) for name in numbers if chosen.random() < 0.85}
        if chosen.random() < 0.85:
            value[text] = chosen.choice("xyz")
        records.append(
            {
                "topic": topic,
                "key": chosen.choice(("k", "l", "m", None)) if chosen.random() < 0.6 else "k",
                "value": None if chosen.random() < (0.25 if topic in TABLE_TOPICS else 0.08) else value,
                "ts": now,
            }
        )
    return records
