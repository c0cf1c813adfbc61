"""Worker steps of `cluster_child`: in a module, so that workers import them and need not unpickle a script."""

import time
from pathlib import Path

import pyarrow as pa

from sparkrelay.runtime.contract.commands import encode_bytes
from sparkrelay.runtime.worker.context import current_command, current_spark_partition, drain
from sparkrelay.runtime.worker.own.executor import own_executor
from sparkrelay.runtime.worker.slot_keeper import ClaimCommand, claim_slot


def report_where(batches):
    """Yield the executor's id, the Spark partition among three, and the JVM's pid."""
    drain(batches)
    current_command(type(None))
    own = own_executor()
    yield pa.record_batch(
        {"report": pa.array([encode_bytes([(own.id, current_spark_partition(3), own.jvm)])], pa.binary())}
    )


def claim_and_wait(batches):
    """Claim a slot, but answer only once there is a file ``answer`` in the state directory."""
    answer = Path(current_command(ClaimCommand).state_dir) / "answer"
    for row in claim_slot(batches):
        while not answer.exists():
            time.sleep(0.01)
        yield row


def hold_core(batches):
    """Keep a core, as another query's task does, from the file ``held`` until the file ``let go`` in a directory."""
    folder = Path(current_command(ClaimCommand).state_dir)
    drain(batches)
    (folder / "held").touch()
    while not (folder / "let go").exists():
        time.sleep(0.01)
    yield pa.record_batch({"report": pa.array([encode_bytes([])], pa.binary())})
