"""Backlogs of wide records: a micro-batch takes no more of them than its bytes allow."""

import json
import logging
import re

import pytest

from .user_counts import counting, counts

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

WIDE = {"n": 1, "more": "x" * 20_000}


@pytest.mark.parametrize("count", [200, pytest.param(20_000, marks=pytest.mark.long)])
def test_a_backlog_of_wide_records(instance, make_topic, produce, wait_for_table, caplog, count):
    """The larger one has a Spark job of its own."""
    caplog.set_level(logging.INFO, "sparkrelay.runtime.batch.batch_limit")
    source, sink = make_topic("in", 2), make_topic("out", 1)
    produce(source, [(f"u{n % 5}", WIDE) for n in range(count)])
    # One record may be larger than all of a micro-batch.
    produce(source, [("wide", json.dumps({"n": 1, "more": "x" * 950_000}))])
    streams = instance(counting(source, sink), {"max.batch.bytes": 1 << 20})
    streams.start()
    wait_for_table(sink, counts(**{f"u{n}": count // 5 for n in range(5)}, wide=1), streams)
    assert streams.exception() is None
    assert re.search(r"max.batch.bytes allows [\d,]+ in a Spark partition: the next batches take", caplog.text)
    assert sum(batch["numInputRows"] > 0 for batch in streams.recentProgress) > 5
