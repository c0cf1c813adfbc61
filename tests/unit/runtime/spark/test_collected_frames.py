"""A DataFrame that is collected now and then, without Spark."""

import gc
import threading
from types import SimpleNamespace

import pyarrow as pa
import pytest

from sparkrelay.errors import StreamsException, TopologyException
from sparkrelay.runtime.spark import collected_frames
from sparkrelay.runtime.spark.collected_frames import CollectedFrame, CollectedFrames
from sparkrelay.runtime.spark.executor_target import ExecutorLost
from sparkrelay.runtime.spark.jobs import JobCancelled, JobFailed

COLUMNS = pa.schema([("country", pa.string()), ("rate", pa.int64())])


class Source:
    """A DataFrame, what it holds, and what became of what was broadcast."""

    def __init__(self):
        self.rates, self.error, self.collected = {"NO": 1}, None, 0
        self.broadcasts, self.destroyed = [], []
        self.frame = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=self))

    def broadcast(self, data):
        number = len(self.broadcasts)
        self.broadcasts.append(pa.ipc.open_stream(data).read_all().to_pylist())
        return SimpleNamespace(destroy=lambda: self.destroyed.append(number))

    def collect(self, frame, description):
        assert frame is self.frame
        assert description == "collecting the DataFrame of pipeline.py:7"
        self.collected += 1
        if self.error is not None:
            raise self.error
        return pa.table({"country": list(self.rates), "rate": pa.array(self.rates.values(), pa.int32())})


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def source():
    return Source()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def frame(source, clock):
    return CollectedFrame("pipeline.py:7", source.frame, COLUMNS, 600.0, clock, source.collect)


def test_it_is_collected_again_once_it_is_too_old(frame, source, clock):
    first = frame.rows
    assert source.broadcasts == [[{"country": "NO", "rate": 1}]]
    source.rates = {"NO": 2, "SE": 3}
    clock.now += 599
    assert frame.refreshed(source.collect) is first
    assert source.collected == 1
    clock.now += 1
    assert frame.refreshed(source.collect) is not first
    assert frame.rows.version != first.version
    assert source.broadcasts[1] == [{"country": "NO", "rate": 2}, {"country": "SE", "rate": 3}]
    assert frame.refreshed(source.collect) is frame.rows
    assert source.collected == 2


def test_rows_that_have_not_changed_stay_what_they_are(frame, source, clock):
    first = frame.rows
    clock.now += 600
    assert frame.refreshed(source.collect) is first
    assert (source.collected, len(source.broadcasts)) == (2, 1)
    clock.now += 599
    frame.refreshed(source.collect)
    assert source.collected == 2, "they are young again"


def test_a_version_is_destroyed_with_the_next_one_once_nobody_has_it(frame, source, clock):
    in_a_plan = frame.rows
    for rate in (2, 3, 4):
        source.rates = {"NO": rate}
        clock.now += 600
        frame.refreshed(source.collect)
        gc.collect()
    assert source.destroyed == [1]
    del in_a_plan
    gc.collect()
    clock.now += 600
    frame.refreshed(source.collect)
    assert source.destroyed == [1, 2, 0]


def test_what_is_gone_already_needs_no_destroying(source, caplog):
    def gone():
        raise AttributeError("the session was stopped")

    collected_frames._unused.append(SimpleNamespace(destroy=gone))
    collected_frames._destroy_unused()
    assert not collected_frames._unused


def test_old_rows_do_while_the_source_is_away_and_then_no_more(frame, source, clock, caplog):
    first = frame.rows
    source.error = JobFailed("connection refused")
    clock.now += 700
    assert frame.refreshed(source.collect) is first
    (line,) = caplog.messages
    assert line.startswith(
        "pipeline.py:7: the DataFrame of join() could not be collected again, and its rows are 700 s"
    )
    assert "refresh: 600 s" in line
    assert line.endswith("connection refused")
    clock.now += 0.5
    assert frame.refreshed(source.collect) is first
    assert source.collected == 2, "there is a pause"
    clock.now += 600
    for _ in range(2):
        with pytest.raises(JobFailed, match=r"pipeline.py:7: .* 13\d\d s old .* no longer used.*connection refused"):
            frame.refreshed(source.collect)
    source.error, source.rates = None, {"NO": 9}
    assert frame.refreshed(source.collect) is not first
    assert frame.refreshed(source.collect) is frame.rows


@pytest.mark.parametrize("error", [JobCancelled("tasks leave"), ExecutorLost("gone"), StreamsException("no session")])
def test_what_is_not_about_the_source_is_raised(frame, source, clock, caplog, error):
    source.error = error
    clock.now += 600
    with pytest.raises(type(error)):
        frame.refreshed(source.collect)
    source.error = None
    frame.refreshed(source.collect)
    assert not caplog.messages
    assert source.collected == 3, "it is not held against the source"


def test_others_go_on_with_what_there_is_while_one_collects(frame, source, clock):
    first, found = frame.rows, []
    clock.now += 600
    source.rates = {"NO": 5}

    def collect(*arguments):
        other = threading.Thread(target=lambda: found.append(frame.refreshed(source.collect)))
        other.start()
        other.join()
        return source.collect(*arguments)

    assert frame.refreshed(collect) is frame.rows
    assert found == [first]
    assert source.collected == 2


def test_one_that_is_too_large_is_refused_with_its_size(frame, source, clock, caplog, monkeypatch):
    monkeypatch.setattr(collected_frames, "MOST_BYTES", 1 << 20)
    source.rates = {f"country {n}": n for n in range(100_000)}
    with pytest.raises(TopologyException, match=r"pipeline.py:7: .* 100,000 rows of \d MiB, but .* at most 1 MiB"):
        CollectedFrame("pipeline.py:7", source.frame, COLUMNS, 600.0, clock, source.collect)
    # One that has grown is as one that cannot be read.
    first = frame.rows
    clock.now += 600
    assert frame.refreshed(source.collect) is first
    assert "100,000 rows" in caplog.messages[0]


def test_an_instance_collects_for_each_join_once(source, clock):
    frames = CollectedFrames(clock)
    steps = [type("Step", (), {"call_site": "pipeline.py:7"})() for _ in range(2)]
    for step in (steps[0], steps[0], steps[1]):
        frames.collect(step, source.frame, COLUMNS, 600.0, source.collect)
    assert source.collected == 2
    assert frames.of(steps[0]).number != frames.of(steps[1]).number
    assert frames.of(steps[0]).rows is not frames.of(steps[1]).rows
