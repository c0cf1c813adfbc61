"""Commands and reports between driver and workers: what is read back, and what is refused."""

import os
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from tests.doubles.attack import Attack

from sparkrelay.client.transaction_calls import ProducerIdentity
from sparkrelay.errors import (
    BrokerResponseException,
    LogTruncationException,
    RecordDeserializationException,
    StoreCorruptedException,
    StreamsException,
)
from sparkrelay.operators.table.reading import StoreRead, StoreReading
from sparkrelay.runtime.contract.commands import (
    BatchCommand,
    LegReport,
    RestoreCommand,
    RestoreReport,
    RestoreSlice,
    StoreRestore,
    TaskCommand,
    decode,
    decode_bytes,
    encode,
    encode_bytes,
)
from sparkrelay.runtime.contract.failure_marks import MisplacedTask
from sparkrelay.runtime.contract.host_metadata import HostMetadata
from sparkrelay.runtime.worker.cleaning import CleanCommand
from sparkrelay.runtime.worker.slot_keeper import ClaimCommand, ClaimedSlot, ReleaseCommand
from sparkrelay.types import ProcessId, TaskId, TopicPartition

TASK, PARTITION = TaskId(0, 1), TopicPartition("a", 1)
IDENTITY = ProducerIdentity("app-0_1", 7, 3, 2, 60_000)
ROWS = pa.record_batch({"user": ["ada"], "n": [3]})
STORE = RestoreCommand(TASK, "/state/0_1", (StoreRestore("counts", PARTITION, 9),), topic_ids={"a": "x"})


@pytest.mark.parametrize(
    "value",
    [
        None,
        BatchCommand(
            ((TaskCommand(TASK, 1, 0, 5, "/state", IDENTITY, {PARTITION: (0, 2)}, {PARTITION: 0}),), ()), {"b": 2}
        ),
        RestoreSlice(((STORE,), ()), 0.5),
        [LegReport("leg", TASK, 1, next_sequences={PARTITION: 4}, error=StoreCorruptedException("torn"))],
        [RestoreReport(TASK, {PARTITION: 1}, 3, {PARTITION: 2})],
        [ClaimedSlot("/state/0", 0, ProcessId.random(), HostMetadata("host"), (TASK,), 1, "2")],
        StoreReading("rows", "/state/0_1", key=ROWS, committed=3, task_epoch=2),
        StoreReading("page", "/state/0_1", start=b"a", most=5, changelog=PARTITION),
        [StoreRead(ROWS, b"ada\0", 4, 12, (0, -1))],
        [ClaimCommand("/state", "app"), ReleaseCommand(1, "2"), CleanCommand("/state/0", frozenset({TASK}), 1.0, 2.0)],
    ],
    ids=lambda value: type(value[0] if isinstance(value, list) else value).__name__,
)
def test_what_is_sent_is_what_is_read(value):
    assert repr(decode(encode(value))) == repr(value)


def test_what_stands_behind_a_report_is_not_read():
    assert decode_bytes(encode_bytes(["report"]) + bytes(8)) == ["report"]


@pytest.mark.parametrize(
    "error",
    [
        MisplacedTask("elsewhere"),
        BrokerResponseException("not now", code=16, name="NOT_COORDINATOR", retriable=True),
        LogTruncationException("cut", partition=PARTITION, position=4, divergent_offset=None),
        RecordDeserializationException("bad", topic="a", partition=1, offset=2, column="key"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_keep_what_they_carry(error):
    found = decode_bytes(encode_bytes(error))
    assert type(found) is type(error)
    assert (str(found), vars(found)) == (str(error), vars(error))


@pytest.mark.parametrize("call", [os.mkdir, Path.mkdir, eval, exec, __import__, getattr])
def test_bytes_that_name_anything_else_run_nothing(tmp_path, call):
    made = tmp_path / "made"
    arguments = {os.mkdir: (str(made),), Path.mkdir: (made,)}.get(call, (f"__import__('os').mkdir({str(made)!r})",))
    with pytest.raises(StreamsException, match="which is not allowed in one"):
        decode_bytes(pickle.dumps([Attack(call, *arguments)]))
    assert not made.exists()


def test_what_our_modules_only_import_is_not_to_be_had_either():
    for module, name in [
        ("sparkrelay.runtime.contract.commands", "pickle.loads"),
        ("sparkrelay.errors", "__builtins__"),
    ]:
        attack = f"c{module}\n{name}\n.".encode()
        with pytest.raises(StreamsException, match="which is not allowed in one"):
            decode_bytes(attack)
