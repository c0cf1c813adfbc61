"""Topics that are files: what is committed is there, what is not never was."""

import pyarrow as pa
import pytest

from sparkrelay.client.file_log import LOG_DIRECTORY, FileFetcher, FileLog, FileProducer
from sparkrelay.errors import OffsetOutOfRangeException, RecordTooLargeException
from sparkrelay.records.batches.encode import ProducerState, encode
from sparkrelay.types import TopicPartition

ORDERS = TopicPartition("orders-of-2026", 0)
OTHER = TopicPartition("orders-of-2026", 1)


def batches(*values, **kwargs):
    column = pa.array(values, pa.binary())
    return b"".join(bytes(batch.data) for batch in encode(column, column, timestamps=1000, **kwargs))


def values(log, partition=ORDERS):
    records = log.read(partition, 0, log.end(partition), ("offset", "value"))
    return list(zip(records.column("offset").to_pylist(), records.column("value").to_pylist(), strict=True))


@pytest.fixture
def log(tmp_path):
    return FileLog(tmp_path)


def test_offsets_go_on_from_batch_to_batch(log):
    assert log.end(ORDERS) == 0
    log.append(ORDERS, batches(b"a", b"b") + batches(b"c"))
    log.append(ORDERS, batches(b"d"))
    assert values(log) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
    assert log.end(ORDERS) == 4
    assert values(log, OTHER) == []


def test_a_range_is_read_whatever_batches_it_cuts(log):
    log.append(ORDERS, batches(b"a", b"b", b"c") + batches(b"d", b"e"))
    assert log.read(ORDERS, 1, 4, ("value",)).column("value").to_pylist() == [b"b", b"c", b"d"]
    assert log.read(ORDERS, 2, 2, ("value",)).num_rows == 0
    with pytest.raises(OffsetOutOfRangeException, match="orders-of-2026-0 ends at 5, before 6"):
        log.read(ORDERS, 4, 6)


def test_a_transaction_is_seen_when_it_is_committed_and_never_if_it_is_aborted(tmp_path, log):
    producer = FileProducer({LOG_DIRECTORY: str(tmp_path)})
    for transaction, value in (("app-0_0", b"mine"), ("app-0_1", b"other's"), ("app-0_0", b"mine too")):
        data = batches(value, producer=ProducerState(7, 0, 0), transactional=True)
        producer.send(ORDERS, data, transactional_id=transaction)
    producer.send(OTHER, batches(b"beside"), transactional_id="app-0_0")
    assert not producer.flush_each(1.0).failed
    assert values(log) == []
    log.commit("app-0_0")
    log.abort("app-0_1")
    log.commit("app-0_1")
    assert values(log) == [(0, b"mine"), (1, b"mine too")]
    assert values(log, OTHER) == [(0, b"beside")]


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({}, 1_048_576),
        ({"max.request.size": "2000"}, 2000),
        ({"message.max.bytes": 3000}, 3000),
    ],
)
def test_what_a_producer_would_not_send_is_refused(tmp_path, log, settings, limit):
    producer = FileProducer(settings | {LOG_DIRECTORY: str(tmp_path)})
    assert producer.max_request_size == limit
    producer.send(ORDERS, bytes(batches(b"a" * (limit // 3))), transactional_id="app-0_0")
    with pytest.raises(RecordTooLargeException, match=rf"for orders-of-2026-0 .* max.request.size={limit}"):
        producer.send(ORDERS, bytes(batches(b"a" * limit)), transactional_id="app-0_0")
    log.commit("app-0_0")
    assert log.end(ORDERS) == 1


def test_a_fetcher_reads_what_others_write(tmp_path, log):
    log.append(ORDERS, batches(b"a", b"b"))
    fetcher = FileFetcher({LOG_DIRECTORY: str(tmp_path)})
    found = [(partition, rows.to_pylist()) for partition, rows in fetcher.fetch({ORDERS: (1, 2)}, columns={"value"})]
    assert found == [(ORDERS, [{"value": b"b"}])]
    fetcher.close()


def test_a_log_that_was_cleared_begins_again(log):
    log.append(ORDERS, batches(b"a", b"b"))
    log.write(OTHER, batches(b"c"), "open")
    log.clear()
    assert (log.end(ORDERS), log.cleared) == (0, 1)
    log.commit("open")
    log.append(ORDERS, batches(b"d"))
    assert (values(log), values(log, OTHER)) == ([(0, b"d")], [])
    log.clear()
    log.clear()
    assert log.cleared == 3
