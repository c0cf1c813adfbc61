"""Listeners of a real instance: a store that is restored, and a copy that follows."""

import re
from collections import defaultdict
from pathlib import Path

import pytest
from tests.waiting import LONG

from sparkrelay import Json, StandbyUpdateListener, StateRestoreListener, StreamsBuilder, String
from sparkrelay.errors import StreamsException

PAGE = (Path(__file__).parents[3] / "docs" / "watching.md").read_text()

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


class Restores(StateRestoreListener):
    def __init__(self):
        self.started, self.restored, self.ended = {}, defaultdict(int), {}

    def on_restore_start(self, partition, store, starting_offset, ending_offset):
        self.started[partition] = store, starting_offset, ending_offset

    def on_batch_restored(self, partition, store, batch_end_offset, num_restored):
        self.restored[partition] += num_restored

    def on_restore_end(self, partition, store, total_restored):
        self.ended[partition] = total_restored


class Standbys(StandbyUpdateListener):
    def __init__(self):
        self.loaded = defaultdict(int)

    def on_batch_loaded(self, partition, store, task, batch_end_offset, batch_size, current_end_offset):
        self.loaded[partition] += batch_size


def counting(source, sink):
    builder = StreamsBuilder()
    orders = builder.stream(source, key=String("user"), value=Json("n int"))
    orders.groupBy("user").count(name="counts").to(sink)
    return builder


@pytest.mark.long
def test_a_lost_store_is_restored_and_a_standby_follows(
    instance, make_topic, produce, table, wait_until, tmp_path, application_id
):
    source, sink = make_topic("in", 2), make_topic("out", 2)
    produce(source, [(f"u{n}", {"n": n}) for n in range(40)])
    first = instance(counting(source, sink))
    first.start()
    wait_until(lambda: len(table(sink)) == 40, lambda: first.status)
    wait_until(lambda: first.metrics()["process-total"] >= 40, "the last batch is not counted")
    with pytest.raises(StreamsException, match=r"call stop\(\) first"):
        first.clean_up()
    assert first.stop(LONG)
    first.clean_up()
    again, restores = instance(counting(source, sink), {"num.standby.replicas": 1}), Restores()
    again.set_global_state_restore_listener(restores)
    again.start()
    wait_until(lambda: len(restores.ended) == 2, lambda: f"{again.status} {restores.ended}")
    changelog = f"{application_id}-counts-changelog"
    assert {partition.topic for partition in restores.started} == {changelog}
    for partition, (store, start, end) in restores.started.items():
        assert (store, start) == ("counts", 0)
        assert restores.ended[partition] == restores.restored[partition] == end > 0
    other, standbys = (
        instance(counting(source, sink), {"num.standby.replicas": 1, "state.dir": str(tmp_path / "other")}),
        Standbys(),
    )
    # The page's listeners first; the last ones that are set count.
    [script] = re.findall(r"```python\n(.*?)```", PAGE.split("\n## Be notified")[1], re.DOTALL)
    names = {}
    exec(compile(script, "watching.md", "exec"), names)
    names["watched"](other)
    other.set_standby_update_listener(standbys)
    other.start()
    wait_until(lambda: sum(standbys.loaded.values()) > 0, lambda: other.status)
    assert {partition.topic for partition in standbys.loaded} == {changelog}
