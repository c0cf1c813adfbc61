"""The letters of a dead letter topic (KIP-1034): reading them, and writing them back to their source topics.

Letters are written back exactly once: each transaction commits the offsets of its letters, for the replay's own group.
A new replay of the topic fences the previous one.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkrelay.client.admin import EARLIEST, LATEST, Admin
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.produce import Producer
from sparkrelay.client.transactions import TransactionCoordinator
from sparkrelay.consumer.fetch.bounded import BoundedFetcher
from sparkrelay.errors import (
    BrokerResponseException,
    RecordRefusedException,
    RecordTooLargeException,
    SparkRelayError,
    StreamsException,
    UnknownTopicException,
)
from sparkrelay.records.batches.columns import HEADERS_TYPE
from sparkrelay.records.batches.encode import ProducerState, encode
from sparkrelay.records.partition import murmur2_partitions
from sparkrelay.runtime.contract import dead_letter_headers
from sparkrelay.runtime.topics.topic_names import INTERNAL_SUFFIXES
from sparkrelay.types import TopicPartition, is_topic_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Self

    from sparkrelay.client.transactions import ProducerIdentity

_BOOTSTRAP_S: Final = 15.0
_TIMEOUT_S: Final = 60.0
_TRANSACTION_MS: Final = 60_000
#: Most letters of one transaction, which are held in memory.
_AT_ONCE: Final = 5_000

_COLUMNS: Final = frozenset({"key", "value", "offset", "timestamp", "headers"})
_NUMBER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)

#: Errors for a record that its topic rejects.
_REFUSALS: Final = (BrokerResponseException, RecordRefusedException, RecordTooLargeException)

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that an exception handler skipped.

    Attributes:
        at: its partition in the dead letter topic.
        offset: its offset there.
        timestamp: the record's, milliseconds since 1970.
        headers: the record's, without those about the error.
        source: the partition that it was read from; None if the letter does not name it.
        source_offset: its offset in ``source``; None if the letter does not name it.
        exception: class name of the error.
    """

    at: TopicPartition
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    source: TopicPartition | None
    source_offset: int | None
    exception: str
    message: str
    trace: str

    @property
    def is_letter(self) -> bool:
        """Whether it has the headers of a dead letter; other programs may write to the topic, too."""
        return self.source is not None or bool(self.exception)

    @property
    def replayable(self) -> bool:
        """Whether it can be written back: it names a source that is not an internal topic.

        Anyone who may write to the dead letter topic can forge the source. Internal topics are an application's own,
        where a record would enter its state, and Kafka's, which reject writes. A request for an invalid topic name may
        end the connection.
        """
        if self.source is None or not is_topic_name(self.source.topic):
            return False
        return not (self.source.topic.endswith(INTERNAL_SUFFIXES) or self.source.topic.startswith("__"))


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay has written, or would write.

    Attributes:
        letters: topic -> number of letters that go back to it.
        left: number of letters that stay: they name no source, an internal topic, or a topic that no longer exists.
    """

    letters: Mapping[str, int]
    left: int


class DeadLetters:
    """The letters of a topic; raises UnknownTopicException if it does not exist. Not thread-safe; a context manager."""

    def __init__(self, settings: Mapping[str, Any], topic: str) -> None:
        self._settings = dict(settings)
        self._topic = topic
        self._group = f"{topic}-replay"
        self._client = KafkaClient(ClientConfig.from_dict(settings))
        try:
            self._client.bootstrap(_BOOTSTRAP_S)
            self._admin = Admin(self._client, timeout=_TIMEOUT_S)
            numbers = self._admin.partitions([topic])[topic]
            if not numbers:
                raise UnknownTopicException(
                    f"topic {topic!r} does not exist; give the one of errors.dead.letter.queue.topic.name"
                )
            self._partitions = [TopicPartition(topic, number) for number in numbers]
        except BaseException:
            self._client.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def read(self) -> Iterator[DeadLetter]:
        """Yield every letter, each partition's in order."""
        yield from self._read(self._admin.list_offsets(dict.fromkeys(self._partitions, EARLIEST)))

    def look(self) -> Replay:
        """Return what :meth:`replay` would do."""
        targets = map(self._target, self._read(self._next()))
        topics = Counter(None if target is None else target.topic for target in targets)
        left = topics.pop(None, 0)
        return Replay({topic: count for topic, count in topics.items() if topic is not None}, left)

    def replay(self) -> Replay:
        """Write back all letters that no replay has written back yet, and return their numbers.

        Raises:
            ProducerFencedException: another replay of the topic has begun.
            SparkRelayError: a write failed; for a letter that its topic rejects, the message names it and a remedy.
                Earlier letters are written back, and the next replay continues after them.
        """
        transactions = TransactionCoordinator(self._client, timeout=_TIMEOUT_S)
        identity = transactions.init([self._group], transaction_timeout_ms=_TRANSACTION_MS)[self._group]
        # From here on no other replay can move the offsets.
        at, letters, left = self._next(), Counter[str](), 0
        waiting, chunks = deque[list[DeadLetter]](), _chunks(self._read(at))
        while some := waiting.popleft() if waiting else next(chunks, None):
            going_back = [(target, letter) for letter in some if (target := self._target(letter)) is not None]
            try:
                self._write(identity, going_back)
            except SparkRelayError as error:
                aborted = transactions.abort([identity], self._group)[self._group]
                if not isinstance(error, _REFUSALS) or error.retriable or isinstance(aborted, SparkRelayError):
                    raise
                if len(some) == 1:
                    raise self._refused(some[0], error) from error
                # Halve the letters to find the rejected one; those before it are written back.
                identity, half = aborted, len(some) // 2
                waiting.extendleft((some[half:], some[:half]))
                continue
            at |= {letter.at: letter.offset + 1 for letter in some}
            answer = transactions.commit({identity: at}, self._group)[self._group]
            if isinstance(answer, SparkRelayError):
                raise answer
            identity, left = answer, left + len(some) - len(going_back)
            letters.update(target.topic for target, _ in going_back)
        return Replay(dict(letters), left)

    def _refused(self, letter: DeadLetter, error: SparkRelayError) -> StreamsException:
        assert letter.source is not None, "it has a target"
        return StreamsException(
            f"topic {letter.source.topic!r} rejects the letter at offset {letter.offset} of {letter.at}: {error}. "
            "Earlier letters are written back. Change the topic to accept it, or skip it: kafka-consumer-groups.sh "
            f"--bootstrap-server ... --group {self._group} --topic {letter.at.topic}:{letter.at.partition} "
            f"--reset-offsets --to-offset {letter.offset + 1} --execute"
        )

    def _next(self) -> dict[TopicPartition, int]:
        """Return the end of the last replay, or the beginning of the topic."""
        first = self._admin.list_offsets(dict.fromkeys(self._partitions, EARLIEST))
        done = self._admin.committed_offsets(self._group, self._partitions)
        return {partition: max(start, done.get(partition, 0)) for partition, start in first.items()}

    def _read(self, start: Mapping[TopicPartition, int]) -> Iterator[DeadLetter]:
        ends = self._admin.list_offsets(dict.fromkeys(self._partitions, LATEST))
        ranges = {partition: (first, ends[partition]) for partition, first in start.items() if first < ends[partition]}
        if not ranges:
            return
        with BoundedFetcher(self._settings) as fetcher:
            for partition, batch in fetcher.fetch(ranges, columns=_COLUMNS):
                times = batch.column("timestamp").cast(pa.timestamp("ms", "UTC")).view(pa.int64())
                for time, record in zip(times.to_pylist(), batch.to_pylist(), strict=True):
                    yield _letter(partition, time, record)

    def _width(self, topic: str) -> int:
        """Return the number of partitions of a topic; 0 if it does not exist."""
        if self._client.metadata.partitions(topic) is None:
            return len(self._admin.partitions([topic])[topic] or ())
        return len(self._client.metadata.partitions(topic) or ())

    def _write(self, identity: ProducerIdentity, letters: Sequence[tuple[TopicPartition, DeadLetter]]) -> None:
        producer = Producer(self._client)
        producer.begin(identity)
        by_target: dict[TopicPartition, list[DeadLetter]] = defaultdict(list)
        for target, letter in letters:
            by_target[target].append(letter)
        for target, some in by_target.items():
            headers = [[{"key": key, "value": value} for key, value in letter.headers] or None for letter in some]
            for batch in encode(
                pa.array([letter.key for letter in some], pa.binary()),
                pa.array([letter.value for letter in some], pa.binary()),
                timestamps=pa.array([letter.timestamp for letter in some], pa.int64()),
                headers=pa.array(headers, HEADERS_TYPE),
                producer=ProducerState(identity.producer_id, identity.epoch, 0),
                transactional=True,
                max_batch_bytes=min(1_000_000, producer.max_request_size),
            ):
                producer.send(target, batch.data, transactional_id=identity.transactional_id)
        producer.flush(_TIMEOUT_S)

    def _target(self, letter: DeadLetter) -> TopicPartition | None:
        """Return the partition to write a letter to: its source, whatever the partitioner; None if it stays."""
        source = letter.source
        if source is None or not letter.replayable or not (width := self._width(source.topic)):
            return None
        if source.partition < width:
            return source
        number = int(murmur2_partitions(pa.array([letter.key], pa.binary()), width)[0])
        return TopicPartition(source.topic, max(number, 0))


def _chunks(letters: Iterator[DeadLetter]) -> Iterator[list[DeadLetter]]:
    while some := list(itertools.islice(letters, _AT_ONCE)):
        yield some


def _letter(at: TopicPartition, timestamp: int, record: Mapping[str, Any]) -> DeadLetter:
    own: list[tuple[str, bytes | None]] = []
    # The last headers count: a letter may itself have become a dead letter.
    said: dict[str, str] = {}
    for header in record["headers"] or ():
        if header["key"].startswith(dead_letter_headers.PREFIX):
            said[header["key"]] = (header["value"] or b"").decode(errors="replace")
        else:
            own.append((header["key"], header["value"]))
    source, number = said.get(dead_letter_headers.TOPIC), _number(said.get(dead_letter_headers.PARTITION))
    return DeadLetter(
        at=at,
        offset=record["offset"],
        timestamp=timestamp,
        key=record["key"],
        value=record["value"],
        headers=tuple(own),
        source=None if source is None or number is None else TopicPartition(source, number),
        source_offset=_number(said.get(dead_letter_headers.OFFSET)),
        exception=said.get(dead_letter_headers.EXCEPTION, ""),
        message=said.get(dead_letter_headers.MESSAGE, ""),
        trace=said.get(dead_letter_headers.TRACE, ""),
    )


def _number(text: str | None) -> int | None:
    """Parse an untrusted number; None if it is not one."""
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None
