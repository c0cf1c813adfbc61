"""Stateful processors in an instance: timers that wake it, and state that outlives it."""

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from tests.waiting import remove_folder

from sparkrelay import Json, StreamsBuilder, String

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


class Reminding(StatefulProcessor):
    """Counts, and says how many there were once a row's time is over."""

    def init(self, handle):
        self.handle = handle
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key, rows, times):
        before = self.count.get() or (0,)
        for row in rows:
            before = (before[0] + 1,)
            self.handle.registerTimer(times.getCurrentProcessingTimeInMs() + row.ms)
        self.count.update(before)
        return iter(())

    def handleExpiredTimer(self, key, times, info):
        assert info.getExpiryTimeInMs() <= times.getCurrentProcessingTimeInMs()
        yield Row(user=key[0], n=self.count.get()[0])

    def close(self):
        pass


def reminding(source, sink):
    builder = StreamsBuilder()
    rows = builder.stream(source, key=String("user"), value=Json("ms long"))
    made = rows.groupBy("user").transformWithState(
        Reminding(), "user string, n long", "Append", "ProcessingTime", name="reminders"
    )
    made.to(sink, key=String("user"), value=Json())
    return builder


@pytest.mark.long
def test_a_timer_is_fired_though_nothing_comes_and_on_whatever_instance(
    instance, make_topic, produce, wait_for_table, wait_until, tmp_path
):
    """The proof on a real broker; tests/integration/testing/test_transformations.py has what processors do."""
    source, sink = make_topic("in", 2), make_topic("out", 1)
    # Nothing but the timer wakes it.
    config = {"poll.ms": 60_000, "max.batch.retries": 0}
    with instance(reminding(source, sink), config) as streams:
        streams.start()
        produce(source, [("ada", {"ms": 1500}), ("bob", {"ms": 1500})])
        wait_for_table(sink, {b"ada": {"user": "ada", "n": 1}, b"bob": {"user": "bob", "n": 1}}, streams)
        produce(source, [("ada", {"ms": 10_000})])
        wait_until(lambda: not any(streams.input_lags.values()), f"{streams.status}")
    remove_folder(tmp_path / "state")
    with instance(reminding(source, sink), config) as streams:
        streams.start()
        wait_for_table(sink, {b"ada": {"user": "ada", "n": 2}, b"bob": {"user": "bob", "n": 1}}, streams)
