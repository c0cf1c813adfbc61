"""A real broker that dies, freezes, throttles, or has a damaged log under a consumer that reads."""

import time

import pytest
from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest
from tests.marks import marked
from tests.waiting import LONG, collect, wait_until

from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.errors import CorruptRecordException
from sparkrelay.types import TopicPartition

pytestmark = [
    pytest.mark.integration,
    pytest.mark.chaos,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning"),
]

FETCH = 1
KINDS = ["assigned", "classic", "consumer"]


@pytest.mark.parametrize("kind", marked(KINDS, {"classic"}))
def test_the_broker_is_killed_and_returns(broker, proxy, ledger, make_consumer, reader, wait_until, kind):
    book = ledger(partitions=2)
    book.write(1000)
    one = reader(
        make_consumer(book.topic, kind, partitions=2, max_partition_fetch_bytes=5000), commit=kind != "assigned"
    )
    book.wait_until_read(one)
    broker.kill()
    polls = one.polls
    time.sleep(1)  # the outage
    if kind == "assigned":
        wait_until(lambda: one.polls > polls + 1, "poll does not return")
    broker.start()
    book.write(500)
    book.wait_until_read(one)
    # A commit that the broker did not live to see fails, and says so.
    assert not [error for error in one.errors if "committing" not in str(error)]


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_the_broker_freezes_for_longer_than_a_request_may_take(
    broker, proxy, ledger, make_consumer, reader, wait_until, kind
):
    book = ledger()
    book.write(500)
    one = reader(make_consumer(book.topic, kind, request_timeout_ms=700))
    book.wait_until_read(one)
    broker.pause()
    polls = one.polls
    time.sleep(3)  # several times request.timeout.ms
    wait_until(lambda: one.polls > polls + 1, "poll does not return")
    broker.resume()
    book.write(500)
    book.wait_until_read(one)
    assert not one.errors


@pytest.mark.long
def test_positions_of_a_member_hold_over_a_crash(broker, proxy, ledger, make_consumer, reader, wait_until):
    # What was committed before the crash is not read again by the next member, what was not is.
    book = ledger()
    book.write(100)
    first = make_consumer(book.topic, "classic")
    one = reader(first)
    book.wait_until_read(one)
    one.stop()
    first.commit()
    book.write(100)
    broker.kill()
    broker.start()
    first.close(5)
    second = reader(make_consumer(book.topic, "classic"))
    wait_until(lambda: len(second.values) >= 100, lambda: f"not all is read: {second.errors}")
    assert second.values == book.written[100:]


@pytest.fixture
def throttled(bench):
    """Clients named `slow` may read so many bytes a second."""

    def ask(value):
        data = AlterClientQuotasRequest.EntryData
        entry = data(
            entity=[data.EntityData(entity_type="client-id", entity_name="slow")],
            ops=[data.OpData(key="consumer_byte_rate", value=float(value or 0), remove=value is None)],
        )
        with KafkaClient(ClientConfig(bootstrap_servers=bench.broker.bootstrap_servers)) as client:
            client.bootstrap(LONG)
            response = client.send(AlterClientQuotasRequest(entries=[entry], validate_only=False))
            client.wait([response], LONG)
            assert not response.result().entries[0].error_code, response.result()

    yield ask
    ask(None)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_quota_slows_a_member_and_does_not_cost_its_place(throttled, proxy, ledger, make_consumer, reader, kind):
    throttled(100_000)
    book = ledger()
    book.write(1500, size=1000)
    lost = []
    callbacks = dict.fromkeys(("on_revoked", "on_lost"), lambda *_: lost.append(1))
    config = {"client_id": "slow", "max_partition_fetch_bytes": 200_000, "request_timeout_ms": 30_000}
    started = time.monotonic()
    one = reader(make_consumer(book.topic, kind, callbacks=callbacks, **config))
    book.wait_until_read(one)
    assert time.monotonic() - started > 3, "it was throttled"
    assert not one.errors
    assert not lost


def spoil_on_disk(bench, topic, marker):
    """Flip a byte of a record in the stopped broker's segment file."""
    (segment,) = (bench.broker.data_dir / "kraft" / f"{topic}-0").glob("*0.log")
    data = bytearray(segment.read_bytes())
    data[data.index(marker) + 2] ^= 0xFF
    segment.write_bytes(data)


@pytest.mark.parametrize("where", ["on disk", "on the way"])
def test_a_damaged_batch_is_named_and_can_be_passed(bench, broker, proxy, ledger, make_consumer, produce, where):
    book = ledger()
    for number in range(5):
        produce(book.topic, [{"value": f"batch-{number}-{n}"} for n in range(10)])
    bad = b"batch-2-5"
    if where == "on disk":
        broker.stop()
        spoil_on_disk(bench, book.topic, bad)
        broker.start()
    else:
        proxy.on_response = lambda api, version, frame: frame.replace(bad, b"BATCH-2-5") if api == FETCH else frame
    consumer = make_consumer(book.topic)
    partition = TopicPartition(book.topic, 0)
    seen = read_until_it_fails(consumer)
    assert seen == [f"batch-{b}-{n}".encode() for b in range(2) for n in range(10)]
    for _ in range(2):  # it stays in front of the damage
        with pytest.raises(CorruptRecordException, match=rf"{book.topic}-0.*offset 20"):
            poll_until_it_fails(consumer)
    assert consumer.position(partition) == 20
    consumer.seek(partition, 30)
    rest = collect(
        lambda: consumer.poll(0.5).column("value").to_pylist(), lambda rows: len(rows) >= 20, "not all is read"
    )
    assert rest == [f"batch-{b}-{n}".encode() for b in (3, 4) for n in range(10)]


def test_damage_on_the_way_that_is_over_costs_nothing(proxy, ledger, make_consumer):
    book = ledger()
    book.write(50)
    bad = book.written[20]
    proxy.on_response = lambda api, version, frame: frame.replace(bad, bad.swapcase()) if api == FETCH else frame
    consumer = make_consumer(book.topic)
    with pytest.raises(CorruptRecordException):
        poll_until_it_fails(consumer)
    proxy.calm()

    def poll():
        try:
            return consumer.poll(0.5)["value"].to_pylist()
        except CorruptRecordException:
            return ()  # fetched before the calm

    assert collect(poll, lambda seen: len(seen) >= 50, "not all is read") == book.written


def read_until_it_fails(consumer):
    seen = []
    with pytest.raises(CorruptRecordException):
        wait_until(lambda: False, "no error", between=lambda: seen.extend(consumer.poll(0.5)["value"].to_pylist()))
    return seen


def poll_until_it_fails(consumer):
    wait_until(lambda: False, "no error", between=lambda: consumer.poll(0.5))
