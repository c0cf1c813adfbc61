"""What we answer to a case, on the test driver; and how that differs from what Kafka Streams answered."""

from __future__ import annotations

import datetime as dt
import random
import shutil
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.oracle.topology.build import FIELDS, RIGHT_AT, RIGHT_FIELDS, any_before, built, stands_before
from tests.oracle.topology.specs import FUNCTIONS, TABLES

from sparkrelay import String
from sparkrelay.errors import SparkRelayError
from sparkrelay.runtime.batch import residency
from sparkrelay.testing import TopologyTestDriver

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from sparkrelay.testing import TestRecord

__all__ = ["FUNCTIONS", "Standby", "differences", "differences_together"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

#: How many of the records a micro-batch ends behind.
_CUTS = 0.4
_EVER = 1 << 62
_ONE, _ALL = "one record a micro-batch", "in one micro-batch"

#: Fields that say whose row it is.
_GROUP = frozenset({"key", "s", "start", "end"})

Case = dict[str, Any]
Fields = tuple[tuple[str, Any], ...]
Row = tuple[Any, Any, int]


def differences(case: Case, spark: SparkSession) -> list[str]:
    """Return what is wrong with our answers to a case; nothing if it passes.

    It is answered with one record a micro-batch, with all records in one, and cut at random: between the micro-batches
    the instance is started again, on its own state, on what it restores, or on a copy that has fallen behind.

    Of a join of two streams the pairs must come with the same record, in the same order. Rows that find nothing go out
    there when the newest record of both topics is far enough, and here when each topic is; so these are compared over
    the whole run, as often as they come and with their times. What :func:`_settled` says is left out of theirs.

    A case with ``batches`` is also answered with each of them as one micro-batch. One with ``exact`` is compared as
    specs.py says, and its stores after each record.
    """
    try:
        with TopologyTestDriver(built(case), spark=spark) as driver:
            return [
                *_as_they_come(case, driver),
                *(_as_they_come(case, driver, case["batches"]) if "batches" in case else ()),
                *_in_the_end([case], driver, _ALL, random.Random(0), cuts=0.0),
                *_in_the_end([case], driver, "cut at random", random.Random(case["name"]), cuts=_CUTS),
            ]
    except SparkRelayError as error:
        return [f"{case['name']}: refused, or failed: {error}"]


def differences_together(cases: Sequence[Case], spark: SparkSession) -> list[str]:
    """Return what is wrong with our answers to cases that are one pipeline, cut at random as in :func:`differences`.

    That is several times faster, for one Spark job has the micro-batches of all.
    """
    name = f"{cases[0]['name']} to {cases[-1]['name']}"
    apart = [_renamed(case, f"case-{number}-") for number, case in enumerate(cases)]
    try:
        # There are not the slots for a resident job, and its plan takes as long to build as the others.
        bulk = mock.patch.object(residency, "_IN_A_ROW", 1 << 62)
        with bulk, TopologyTestDriver(built(*apart), spark=spark) as driver:
            chosen = random.Random(name)
            return list(_in_the_end(apart, driver, "cut at random", chosen, cuts=_CUTS / len(cases)))
    except SparkRelayError as error:
        return [f"{name}: refused, or failed: {error}"]


def _renamed(case: Case, prefix: str) -> Case:
    """Return a case that has its topics and stores for itself."""
    names = ("topic", "store")
    expected = case["expected"]
    return {
        "name": case["name"],
        "spec": [node | {name: prefix + node[name] for name in names if name in node} for node in case["spec"]],
        "input": [record | {"topic": prefix + record["topic"]} for record in case["input"]],
        "expected": {
            "outputs": [{prefix + topic: rows for topic, rows in said.items()} for said in expected["outputs"]],
            "stores": {prefix + store: rows for store, rows in expected["stores"].items()},
        },
    }


def _as_they_come(case: Case, driver: TopologyTestDriver, batches: Sequence[int] = ()) -> Iterator[str]:
    """Compare after each record, or each batch of so many records, what it has brought out."""
    driver.clear()
    driver.batch = "all" if batches else "record"
    outputs, states = case["expected"]["outputs"], case["expected"].get("states", ())
    reads = _Reads(case, driver)
    joined: dict[str, tuple[list[Row], list[Row]]] = {topic: ([], []) for topic in reads.joined}
    end = 0
    for size in batches or [1] * len(outputs):
        for _ in range(size):
            reads.pipe_next()
        came = outputs[end : end + size]
        end += size
        where = f"{case['name']}, {f'batch to record {end}' if batches else f'record {end - 1}'}"
        for topic, rows in reads.taken().items():
            raw = [row for written in came for row in written.get(topic, ())]
            wanted = [_comparable(row, reads.windowed[topic]) for row in raw]
            if batches and reads.tables[topic]:
                # Which key comes first is nobody's business then.
                found, wanted = _sorted(rows), _sorted([*{row[0]: row for row in wanted}.values()])
            else:
                found, wanted = reads.compared(topic, rows, wanted)
            if topic in joined and not reads.exact:
                joined[topic][0].extend(wanted)
                joined[topic][1].extend(found)
                wanted, found = _pairs(wanted), _pairs(found)
            if found != wanted:
                yield f"{where}, {topic}: Kafka Streams {wanted}, ours {found}"
        if states:
            yield from _stores(case, driver, where, states[end - 1], newest=reads.newest_time)
    for topic, (wanted, found) in joined.items():
        if _sorted(found) != _sorted(_settled(wanted)):
            whole, got = _sorted(_settled(wanted)), _sorted(found)
            yield f"{case['name']}, over all records, {topic}: Kafka Streams {whole}, ours {got}"
    if not states:
        yield from _stores(case, driver, f"{case['name']}, {_ONE}", case["expected"]["stores"])


def _in_the_end(
    cases: Sequence[Case], driver: TopologyTestDriver, how: str, chosen: random.Random, *, cuts: float
) -> Iterator[str]:
    """Compare what each topic says once all is over: of a table the last row of each key, of a stream all rows."""
    # What comes later than a table's history is so by the clock before the micro-batch: the cut decides.
    cases = [case for case in cases if not any(_comes_late(case, node.get("history", _EVER)) for node in case["spec"])]
    if not cases:
        return
    driver.clear()
    driver.batch = "all"
    reads = [_Reads(case, driver) for case in cases]
    standby = Standby(driver)
    for number in _interleaved([len(case["input"]) for case in cases], chosen):
        reads[number].pipe_next()
        if chosen.random() < cuts:
            match chosen.randrange(4):
                case 0:
                    driver.process()
                case 1:
                    driver.restart()
                case 2:
                    driver.restart(from_changelog=True)
                case _:
                    standby.promote()
    for case, read in zip(cases, reads, strict=True):
        yield from _said_in_the_end(case, read, how)
        yield from _stores(case, driver, f"{case['name']}, {how}", case["expected"]["stores"], cut=True)


def _interleaved(lengths: Sequence[int], chosen: random.Random) -> list[int]:
    """Return the numbers of sequences in an order in which their items may come."""
    numbers = [number for number, length in enumerate(lengths) for _ in range(length)]
    if len(lengths) > 1:
        chosen.shuffle(numbers)
    return numbers


def _said_in_the_end(case: Case, reads: _Reads, how: str) -> Iterator[str]:
    for topic, rows in reads.taken().items():
        found = rows
        wanted = [
            _comparable(row, reads.windowed[topic])
            for written in case["expected"]["outputs"]
            for row in written.get(topic, ())
        ]
        # Rows of two topics that are taken together have no order among each other.
        free = reads.windowed[topic] or topic in reads.joined or any(node["op"] == "merge" for node in case["spec"])
        if topic in reads.joined:
            wanted = _settled(wanted)
        if topic in reads.ending and _some_late(case, reads.ending[topic]):
            # What is late is so by the clock before the micro-batch: the cut decides.
            continue
        if topic in reads.looked_up and _ambiguous(case):
            # Rows of a micro-batch meet a table by their times, those of the driver by its order.
            continue
        if topic in reads.newest:
            # What was there for a moment only, or is again what it was, nobody has seen.
            wanted, found = _left(wanted), _left(found)
        if topic in reads.gaps and reads.exact is not None and how == _ALL:
            # Ours says each session once.
            wanted, found = _sorted([*_last(wanted).values()]), _sorted(found)
            if found != wanted:
                yield f"{case['name']}, {how}, {topic}: Kafka Streams {wanted}, ours {found}"
            continue
        said = _last if reads.tables[topic] else _sorted if free else list
        if said(found) != said(wanted):
            yield f"{case['name']}, {how}, {topic}: Kafka Streams {said(wanted)}, ours {said(found)}"


def _stores(
    case: Case,
    driver: TopologyTestDriver,
    where: str,
    expected: Case,
    *,
    cut: bool = False,
    newest: int | None = None,
) -> Iterator[str]:
    """Compare what stores hold; of sessions all those that are open, if the newest time is given."""
    ended = {node["store"]: node for node in case["spec"] if "store" in node and "grace" in node}
    looked_up = {
        node["store"] for node in case["spec"] if node["op"] == "aggregate" and stands_before(case, node, "lookup")
    }
    # Tables that are only looked into or joined behind steps are kept as they are there.
    kept = {leg.store for leg in (*driver._topology.legs, *driver._topology.global_tables)}
    gaps = {node["store"]: node["gap"] for node in case["spec"] if "gap" in node}
    # What is joined by a foreign key has a store whose name nobody chooses.
    foreign = [node for node in case["spec"] if {"foreign", "store"} <= node.keys()]
    own = {node["store"]: name for node in foreign for name in kept if "-join-" in str(name)}
    for name, rows in expected.items():
        if name not in kept and name not in own:
            continue
        if name in looked_up and cut and _ambiguous(case):
            continue
        found = sorted((_plain(row, gaps.get(name)) for row in driver.store(own.get(name, name))), key=repr)
        wanted = sorted((_plain(row) for row in rows), key=repr)
        # Kafka Streams keeps windows that are over until a whole segment of them is.
        if name in ended and cut and _some_late(case, ended[name]):
            continue
        if name in ended and newest is not None:
            reach = ended[name]["gap"] + ended[name]["grace"]
            wanted = [row for row in wanted if dict(row)["end"] + reach >= newest]
        elif name in ended:
            wanted = [row for row in wanted if row in found]
        if found != wanted:
            yield f"{where}, store {name}: Kafka Streams {wanted}, ours {found}"


class _Reads:
    """The topics of a case, as they are written and read."""

    def __init__(self, case: Case, driver: TopologyTestDriver) -> None:
        nodes = {node["id"]: node for node in case["spec"]}
        self._driver = driver
        self._input = iter(case["input"])
        #: Of a case of Kafka's own: whether ours must say what Kafka Streams says, or leave out what changes nothing.
        self.exact: bool | None = case.get("exact")
        #: Of the records so far that are in a group.
        self.newest_time = 0
        self._sources = {node["topic"] for node in case["spec"] if node["op"] in {"stream", "table", "global_table"}}
        ends = {node["topic"]: nodes[node["of"]] for node in case["spec"] if node["op"] == "to"}
        self.tables = {
            topic: node["op"] in {*TABLES, "having", "table_join", "regroup"}
            or (node["op"] == "aggregate" and not node.get("final"))
            for topic, node in ends.items()
        }
        self.newest = {
            topic for topic, node in ends.items() if node["op"] in {*TABLES, "having", "table_join", "regroup"}
        }
        #: Topics of what is joined by a foreign key: when its right row changes, Java gives it the time of that alone.
        self.foreign = {topic for topic, node in ends.items() if any_before(case, node, lambda step: "foreign" in step)}
        self.looked_up = {topic for topic, node in ends.items() if stands_before(case, node, "lookup")}
        self.groups = {topic for topic, node in ends.items() if stands_before(case, node, "regroup")}
        behind_joins = {topic for topic, node in ends.items() if stands_before(case, node, "stream_join")}
        waited = {topic for topic, node in ends.items() if any_before(case, node, _waits)}
        # A left row reaches a further join before what the join by its foreign key makes of it.
        again = {
            topic
            for topic, node in ends.items()
            if topic in self.foreign and node["op"] == "table_join" and "foreign" not in node
        }
        self.joined_tables = {topic for topic in behind_joins | waited | again if self.tables[topic]}
        self.joined = behind_joins - self.joined_tables
        #: Topics of tables as they are.
        self.kept = {topic for topic, node in ends.items() if node["op"] == "table"}
        self._rows: dict[tuple[str, str, Any], tuple[Any, int]] = {}
        self.ending = {topic: node for topic, node in ends.items() if node["op"] == "aggregate" and "grace" in node}
        self.windowed = {topic: bool({"window", "gap"} & node.keys()) for topic, node in ends.items()}
        #: Topic to the gap of the sessions that it has, in milliseconds.
        self.gaps = {topic: node["gap"] for topic, node in ends.items() if "gap" in node}
        #: Of topics of sessions: which one it was that a key has named last.
        self._sessions: dict[tuple[str, Any], Fields] = {}
        self._topics = {
            topic: driver.create_output_topic(topic, key=None if windowed else String())
            for topic, windowed in self.windowed.items()
        }

    def pipe_next(self) -> None:
        """Pipe the next record in, if anything of what is left of the case reads its topic."""
        record = next(self._input)
        if record["key"] is not None and record["value"] is not None:
            self.newest_time = max(self.newest_time, record["ts"])
        if record["topic"] in self._sources:
            topic = self._driver.create_input_topic(record["topic"])
            topic.pipe_input(record["key"], record["value"], record["ts"])

    def compared(self, topic: str, found: list[Row], wanted: list[Row]) -> tuple[list[Row], list[Row]]:
        """Return what is compared of our rows and Kafka Streams' after a record."""
        if topic in self.foreign:
            found, wanted = _timeless(found), _timeless(wanted)
        if self.exact:
            return found, wanted
        if topic in self.gaps:
            wanted = _moved(wanted)
        if topic in self.joined_tables:
            # A record that finds several, or has several go on, makes as many updates there, and one here.
            found, wanted = (list({row[0]: row for row in rows}.values()) for rows in (found, wanted))
        if topic in self.newest:
            wanted = self.changes("theirs", topic, wanted, older=self.exact is False and topic in self.kept)
            if self.exact is None:
                found = self.changes("ours", topic, found)
        # Which of several windows that end at once comes first is nobody's business, nor is which of several
        # groups that one record's pairs go into, or which of two groups that a row goes from one to the other
        # of: they need not even be of one task.
        if self.windowed[topic] or topic in self.joined_tables | self.groups:
            return _sorted(found), _sorted(wanted)
        return found, wanted

    def changes(self, whose: str, topic: str, rows: list[Row], *, older: bool = False) -> list[Row]:
        """Leave out what changes no row of a table; Kafka Streams writes it all the same.

        With ``older``, a row that comes again with an older time is a change (KIP-557).
        """
        left = []
        for key, value, timestamp in rows:
            was, at = self._rows.get((whose, topic, key), (None, 0))
            if value != was or (older and value is not None and timestamp < at):
                left.append((key, value, timestamp))
                self._rows[whose, topic, key] = value, timestamp
        return left

    def taken(self) -> dict[str, list[Row]]:
        """Return what each topic has got since the last call."""
        return {
            topic: [
                self._session(topic, record)
                if topic in self.gaps
                else _comparable((record.key, record.value, record.timestamp), self.windowed[topic])
                for record in output.read_records()
            ]
            for topic, output in self._topics.items()
        }

    def _session(self, topic: str, record: TestRecord) -> Row:
        """Return a row of a session; of one that is no more, which it was."""
        name = (topic, record.key)
        if record.value is None:
            return None, tuple(sorted((*self._sessions.pop(name), ("gone", True)))), record.timestamp
        row = _plain(record.value, self.gaps[topic])
        self._sessions[name] = tuple(item for item in row if item[0] in _GROUP)
        return None, row, record.timestamp


class Standby:
    """A copy of the tasks' state, which stands still until it is promoted."""

    def __init__(self, driver: TopologyTestDriver) -> None:
        self._driver = driver
        self._state = driver._folder / "state"
        self._copy = driver._folder / "standby"
        # Of an earlier run of the same driver.
        shutil.rmtree(self._copy, ignore_errors=True)

    def promote(self) -> None:
        """Start the instance again on the copy, which catches up from the changelogs; what it had is the next copy."""
        self._driver.process()
        self._driver._tasks.close()
        newer = self._copy.with_suffix(".next")
        # Where no step has a store there is nothing yet.
        self._state.mkdir(exist_ok=True)
        shutil.copytree(self._state, newer)
        if self._copy.exists():
            shutil.rmtree(self._state)
            self._copy.rename(self._state)
        newer.rename(self._copy)
        self._driver._tasks.open()


def _is_by_foreign_key(step: Case) -> bool:
    return "foreign" in step


def _waits(step: Case) -> bool:
    return step["op"] == "lookup" and "grace" in step


def _timeless(rows: list[Row]) -> list[Row]:
    """Return rows without their timestamps."""
    return [(key, value, 0) for key, value, _ in rows]


def _ambiguous(case: Case) -> bool:
    """Return whether the order of time leaves open which of two topics' records comes first, or is not theirs."""
    times: dict[int, set[str]] = {}
    for record in case["input"]:
        times.setdefault(record["ts"], set()).add(record["topic"])
    return _disordered(case) or any(len(topics) > 1 for topics in times.values())


def _some_late(case: Case, node: Case) -> bool:
    """Return whether a row of windows that end may be late: for sessions, if its own would be over."""
    return _disordered(case) if "gap" not in node else _comes_late(case, node["gap"] + node["grace"])


def _comes_late(case: Case, by: int) -> bool:
    """Return whether a record comes when another one is newer by more than that, in milliseconds."""
    newest = 0
    for record in case["input"]:
        newest = max(newest, record["ts"])
        if record["ts"] + by < newest:
            return True
    return False


def _disordered(case: Case) -> bool:
    """Return whether rows come in another order than that of their times: some may be late."""
    times = [record["ts"] for record in case["input"]]
    return times != sorted(times)


def _comparable(row: Any, windowed: bool) -> Row:
    """Return key, value and timestamp; the keys of windows are each one's own."""
    key, value, timestamp = row
    return None if windowed else key, None if value is None else _plain(value), timestamp


def _plain(row: dict[str, Any], gap: int | None = None) -> Fields:
    """Return the fields that are not null, by name, but for what a foreign key names, and whether that is there.

    A window is its start, in milliseconds. A session, of a gap, is its start and its last record's time, as in Kafka
    Streams: here it ends a gap later.
    """
    left_out = {"window", "named", "right_found"}
    fields = {name: value for name, value in row.items() if value is not None and name not in left_out}
    if (window := row.get("window")) is not None:
        fields["start"] = _millis(window["start"])
        if gap is not None:
            fields["end"] = _millis(window["end"]) - gap
    return tuple(sorted(fields.items()))


def _millis(time: dt.datetime | str) -> int:
    at = time if isinstance(time, dt.datetime) else dt.datetime.fromisoformat(time)
    return round((at - _EPOCH) / dt.timedelta(milliseconds=1))


def _moved(rows: list[Row]) -> list[Row]:
    """Leave out that a session is no more which the same record brings again, with another value."""
    there = {_group(row) for row in rows if not _is_gone(row)}
    return [row for row in rows if not (_is_gone(row) and _group(row) in there)]


def _is_gone(row: Row) -> bool:
    return ("gone", True) in row[1]


def _group(row: Row) -> tuple[Any, ...]:
    """Return whose row it is: its key, or group, and window."""
    return (row[0], *(item for item in row[1] if item[0] in _GROUP))


def _pairs(rows: list[Row]) -> list[Row]:
    """Return the rows of a join that have both sides."""
    return [row for row in rows if row[1] is not None and {"at", RIGHT_AT} <= dict(row[1]).keys()]


def _settled(rows: list[Row]) -> list[Row]:
    """Leave out what Kafka Streams sends out alone although it is found later (kafka#22410).

    A row that comes when the newest of all is further ahead than the join reaches goes out alone at once if it finds
    nothing then, however long the grace; what it goes with may come all the same, and gives its pair. A row of either
    side is known by its key, its fields and its time: equal ones find the same.
    """
    found = {(row[0], side) for row in _pairs(rows) for side in _sides(row)}
    return [row for row in rows if len(_sides(row)) == 2 or (row[0], *_sides(row)) not in found]


def _sides(row: Row) -> list[tuple[tuple[str, Any], ...]]:
    """Return the fields of each side that a row of a join has."""
    own = (dict(row[1]) if row[1] is not None else {}).items()
    left = tuple((name, value) for name, value in own if name in {*FIELDS, "at"})
    right = tuple((name, value) for name, value in own if name in RIGHT_FIELDS)
    return [side for side, time in ((left, "at"), (right, RIGHT_AT)) if time in dict(side)]


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=repr)


def _last(rows: list[Row]) -> dict[Any, Row]:
    """Return the last row of each key, or window and key, that is not gone."""
    return {group: row for group, row in {_group(row): row for row in rows}.items() if not _is_gone(row)}


def _left(rows: list[Row]) -> list[Row]:
    """Return the row that each key has in the end, without its time."""
    return [(key, value, 0) for key, value in sorted({row[0]: row[1] for row in rows}.items()) if value is not None]
