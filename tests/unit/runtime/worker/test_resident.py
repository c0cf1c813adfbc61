"""The steps of a resident job: rows in, marker by marker, however the JVM cuts them into Arrow batches."""

import datetime as dt
import io
import itertools
import socket

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from sparkrelay.runtime.contract.channel import Channel
from sparkrelay.runtime.contract.commands import BatchCommand, decode_bytes, encode_bytes
from sparkrelay.runtime.contract.resident import ResidentCommand, Role, StepName, read_stamp, stamped
from sparkrelay.runtime.worker import resident
from sparkrelay.runtime.worker.context import current_command, report_row

SCHEMA = pa.schema([pa.field("n", pa.int64())])
JOB = ResidentCommand("nowhere", 120)


def name(role):
    return StepName("leg", role, b"key")


@pytest.fixture
def driver(monkeypatch):
    """The driver's end of the channel that the step under test opens."""
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(resident, "connect", lambda *_: Channel(theirs))
    monkeypatch.setattr(
        resident, "current_command", lambda kind: JOB if kind is ResidentCommand else current_command(kind)
    )
    resident.writes_to(io.BytesIO())
    channel = Channel(ours)
    yield channel
    channel.close()


def command(number):
    return BatchCommand(((),), {"topic": number})


def cut(rows, places):
    """Return record batches with ``rows``, cut at those places."""
    edges = [0, *sorted(place % (rows.num_rows + 1) for place in places), rows.num_rows]
    return [rows.slice(a, b - a) for a, b in itertools.pairwise(edges)]


def stream(batches):
    """Return the rows of some micro-batches as a resident source yields them, in one record batch."""
    parts = []
    for number, rows in enumerate(batches):
        made = pa.record_batch([pa.array(rows, pa.int64())], schema=SCHEMA)
        parts += [
            resident._with_marker(made, None),
            resident._end(SCHEMA, stamped(encode_bytes(command(number)), 0.5), 100),
        ]
    return pa.Table.from_batches(parts).combine_chunks().to_batches()[0] if parts else None


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=6), st.lists(st.integers(0, 99)))
def test_rows_come_to_their_own_micro_batch_wherever_they_are_cut(batches, places):
    resident.writes_to(io.BytesIO())
    found = [
        (decode_bytes(data).partitions["topic"], [n for part in rows for n in part.column(0).to_pylist()])
        for (_, data), rows in resident._micro_batches(iter(cut(stream(batches), places)))
    ]
    assert found == list(enumerate(batches))


def test_a_micro_batch_is_handed_over_before_more_is_asked_for():
    asked = []

    def arriving():
        for batch in (stream([[1, 2]]), stream([[3]])):
            asked.append(len(asked))
            yield batch

    resident.writes_to(io.BytesIO())
    micro_batches = resident._micro_batches(arriving())
    next(micro_batches)
    assert asked == [0]
    next(micro_batches)
    assert asked == [0, 1]


def test_what_is_written_is_flushed_before_more_is_waited_for():
    class Output(io.BytesIO):
        flushed = 0

        def flush(self):
            self.flushed += 1

    output = Output()
    resident.writes_to(output)
    assert list(resident._micro_batches(iter(()))) == []
    assert output.flushed == 1


def test_a_source_yields_the_rows_of_each_command_and_ends_with_the_channel(driver):
    def step(_):
        number = current_command(BatchCommand).partitions["topic"]
        yield pa.record_batch([pa.array([number] * number, pa.int64())], schema=SCHEMA)

    for number in (2, 0):
        driver.send(encode_bytes(command(number)))
    source = resident.resident_steps((name(Role.SOURCE),), step, SCHEMA, iter(()))
    made = [next(source) for _ in range(4)]
    assert driver.receive() == b"source leg"
    assert [batch.column(0).to_pylist() for batch in made] == [[2, 2], [None, None], [], [None, None]]
    ends = made[1].column(1).to_pylist()
    assert len(ends[0]) == JOB.marker_bytes
    assert decode_bytes(read_stamp(ends[0])[1]) == command(2)
    assert ends[1] == b""
    driver.close()
    assert list(source) == []


def test_a_step_between_passes_markers_on_behind_its_rows(driver):
    def double(batches):
        for batch in batches:
            yield pa.record_batch([pa.array([2 * n for n in batch.column(0).to_pylist()], pa.int64())], schema=SCHEMA)

    made = list(resident.resident_steps((name(Role.BETWEEN),), double, SCHEMA, iter([stream([[1, 2], []])])))
    assert driver.receive() == b"between leg"
    found = list(resident._micro_batches(iter(made)))
    assert [[part.column(0).to_pylist() for part in rows] for _, rows in found] == [[[2, 4]], []]
    assert [decode_bytes(data) for (_, data), _ in found] == [command(0), command(1)]
    assert all(0.5 <= seconds < 60 for (seconds, _), _ in found), "what the step before has spent, and its own"


def test_a_last_step_reports_over_the_channel_and_yields_nothing(driver):
    def count(batches):
        yield report_row([sum(batch.num_rows for batch in batches), current_command(BatchCommand).partitions["topic"]])

    assert list(resident.resident_steps((name(Role.LAST),), count, None, iter([stream([[1, 2, 3], [4]])]))) == []
    assert driver.receive() == b"last leg"
    stamps, reports = zip(*(read_stamp(driver.receive()) for _ in range(2)), strict=True)
    assert [decode_bytes(report) for report in reports] == [[3, 0], [1, 1]]
    assert all(0.5 <= seconds < 60 for seconds in stamps), "what the steps before have spent, and its own"
    assert driver.receive() is None


def test_a_step_that_fails_closes_its_channel(driver):
    def fail(_):
        raise ValueError("of the user's")
        yield

    driver.send(encode_bytes(command(0)))
    with pytest.raises(ValueError, match="of the user's"):
        list(resident.resident_steps((name(Role.SOURCE),), fail, SCHEMA, iter(())))
    assert driver.receive() == b"source leg"
    assert driver.receive() is None


def test_a_worker_of_another_daemon_is_refused_with_the_setting(monkeypatch):
    monkeypatch.setattr(resident, "_output", None)
    with pytest.raises(Exception, match=r"spark\.python\.daemon\.module"):
        next(resident._micro_batches(iter(())))


@pytest.mark.parametrize(
    ("kind", "zero"),
    [
        (pa.bool_(), False),
        (pa.int8(), 0),
        (pa.float64(), 0.0),
        (pa.string(), ""),
        (pa.binary(), b""),
        (pa.decimal128(10, 2), 0),
        (pa.date32(), dt.date(1970, 1, 1)),
        (pa.timestamp("us", "UTC"), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
        (pa.list_(pa.int32()), []),
        (pa.map_(pa.string(), pa.int32()), []),
        (pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())]), {"a": 0, "b": None}),
    ],
    ids=str,
)
def test_a_marker_has_something_in_columns_that_may_not_be_null(kind, zero):
    schema = pa.schema([pa.field("n", kind, nullable=False)])
    assert resident._end(schema, b"", 1).column(0).to_pylist() == [zero, zero]
