"""What a bounded fetch makes of answers, without a broker."""

import struct
from types import SimpleNamespace

import pyarrow as pa
import pytest

from sparkrelay.client.metadata import Metadata
from sparkrelay.client.transport.response import Response
from sparkrelay.consumer.base.config import ConsumerConfig
from sparkrelay.consumer.fetch import bounded
from sparkrelay.consumer.fetch.bounded import BoundedFetcher
from sparkrelay.consumer.fetch.fetching import Fetched
from sparkrelay.errors import UnsupportedVersionException
from sparkrelay.records.batches.encode import encode
from sparkrelay.types import TopicPartition

ONE = TopicPartition("t", 0)
SETTINGS = {"bootstrap.servers": "h:1"}


def batch(start, count, *, damaged=False):
    (encoded,) = encode(None, pa.array([b"x"] * count), timestamps=0)
    data = bytearray(encoded.data)
    struct.pack_into(">q", data, 0, start)
    if damaged:
        data[16] = 1  # an old format
    return bytes(data)


@pytest.fixture
def read():
    """`read(stop, log)` fetches [0, stop) of a log of (first offset, batch), of which a response brings everything."""
    fetcher = BoundedFetcher(SETTINGS)

    def run(stop, log):
        config = ConsumerConfig.from_dict(SETTINGS, defaults=bounded._DEFAULTS)
        under_way = bounded._Run(SimpleNamespace(metadata=Metadata()), config, {ONE: (0, stop)}, {}, {})
        seen = []
        while under_way.unfinished:
            at = under_way._next[ONE]
            rest = b"".join(data for end, data in log if end > at)
            answer = Fetched(ONE, at, memoryview(rest), high_watermark=99, last_stable_offset=99, first=True)
            under_way.fetched([answer], 0.0, 1)
            for _, rows in fetcher._decoded(under_way, under_way.ready.popleft(), None, None):
                seen += rows.column("offset").to_pylist()
        return seen

    yield run
    fetcher.close()


LOG = [(5, batch(0, 5)), (10, batch(5, 5)), (15, batch(10, 5, damaged=True))]


def test_what_is_broken_behind_the_range_is_none_of_its_business(read):
    assert read(5, LOG) == list(range(5))
    assert read(10, LOG) == list(range(10))


def test_what_is_broken_within_the_range_is_met_once(read):
    with pytest.raises(UnsupportedVersionException, match="the record batch at offset 10"):
        read(11, LOG)


def test_leaders_are_asked_for_until_one_is_known():
    """The first answer may name none, or one that has changed by the time that it is asked."""
    asked = []

    def request_metadata(topics):
        asked.append(set(topics))
        response = Response(None)
        response.finish(None, None)
        return response

    client = SimpleNamespace(metadata=Metadata(), request_metadata=request_metadata)
    config = ConsumerConfig.from_dict(SETTINGS, defaults=bounded._DEFAULTS)
    under_way = bounded._Run(client, config, {ONE: (0, 1)}, {}, {})
    for now in (0.0, 10.0, 20.0):
        under_way._send(now)
        under_way._refresh_metadata(now)
    assert asked == [{"t"}] * 3
