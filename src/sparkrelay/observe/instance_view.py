"""An instance as JSON: the content of ``/api/instance``, and validation of other instances' answers.

Other instances are not trusted: of their JSON only known keys are kept, with values of known types and bounded numbers
of entries and lengths; anything else is refused.
"""

from __future__ import annotations

import math
import socket
import time
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.observe.named_metrics import named_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkrelay.observe.details import InstanceDetails
    from sparkrelay.observe.snapshot import InstanceSnapshot, TaskMetadata, ThreadMetadata

#: Bounds of lists and texts.
_MOST_BATCHES: Final = 30
_MOST_ENTRIES: Final = 5_000
_LONGEST_TEXT: Final = 4_000
#: Python's integers are unbounded, and larger ones are not representable as float.
_LARGEST: Final = 1 << 64
_TEXT: Final = (str,)
_FLAG: Final = (bool,)
_NUMBER: Final = (int, float)
_TEXTS: Final = [_TEXT]
_OPTIONAL_TEXT: Final = (str, type(None))
_OPTIONAL_NUMBER: Final = (*_NUMBER, type(None))


def _all(shape: object, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), shape)


#: The shape of an answer. A list has entries of one shape; a dictionary with the key ``""`` has any keys.
_TASK: Final = {
    **_all(_TEXT, "task process role"),
    **_all(_OPTIONAL_NUMBER, "lag since state_bytes"),
    "inputs": [{"partition": _TEXT, **_all(_OPTIONAL_NUMBER, "at end")}],
    "watermarks": {"": _NUMBER},
}
_BATCH: Final = {
    "at": _TEXT,
    "resident": _FLAG,
    **_all(_NUMBER, "batch rows_in rows_out late tasks"),
    "ms": {"": _NUMBER},
}
_REBALANCE: Final = {
    **_all(_TEXT, "thread kind why"),
    "at": _NUMBER,
    **_all(_OPTIONAL_NUMBER, "generation seconds"),
    "lines": _TEXTS,
}
_SHAPE: Final[Mapping[str, Any]] = {
    **_all(_TEXT, "application host state"),
    **_all(_FLAG, "alive ready"),
    "trouble": _OPTIONAL_TEXT,
    "processes": [{"id": _TEXT, "executor": _OPTIONAL_TEXT}],
    "threads": [_all(_TEXT, "name state process")],
    "tasks": [_TASK],
    **_all({"": _NUMBER}, "metrics records skipped errors"),
    **_all(_NUMBER, "now rows_written late"),
    "batches": [_BATCH],
    "history": [[_NUMBER]],
    "rebalances": [_REBALANCE],
    "graph": {"nodes": [{**_all(_TEXT, "id kind label box"), "notes": _TEXTS}], "edges": [_TEXTS]},
    "plan": _TEXTS,
    **_all({"": _TEXT}, "config members"),
}
_GROUP: Final[Mapping[str, Any]] = {
    **_all(_TEXT, "application asked"),
    "now": _NUMBER,
    **_all(_TEXTS, "missing unknown"),
    "instances": [
        {
            "address": _TEXT,
            "processes": _TEXTS,
            "own": _FLAG,
            "age": _OPTIONAL_NUMBER,
            "problem": _OPTIONAL_TEXT,
        }
    ],
}


def instance_view(
    now: InstanceSnapshot, details: InstanceDetails, history: Sequence[tuple[float, int, int, int]] = ()
) -> dict[str, Any]:
    """Return an instance as JSON."""
    batches = [_batch(report) for report in details.reports if report["sparkrelay"]["tasks"] is not None]
    processes = {thread.process_id: thread.executor_id for thread in now.threads}
    watermarks: dict[str, dict[str, int]] = {}
    for (name, store), time_ms in details.watermarks.items():
        watermarks.setdefault(name, {})[store] = time_ms
    view = {
        "application": now.application_id,
        "host": socket.gethostname(),
        "now": time.time(),
        "state": now.state,
        "alive": now.alive,
        "ready": now.ready,
        "trouble": now.trouble,
        "processes": [{"id": name, "executor": executor} for name, executor in processes.items()],
        "threads": [
            {"name": thread.thread_name, "state": thread.thread_state, "process": thread.process_id[:8]}
            for thread in now.threads
        ],
        "tasks": [
            _task(thread, task, details, watermarks.get(task.task_id, {}))
            for thread in now.threads
            for task in (*thread.active_tasks, *thread.standby_tasks)
        ],
        "metrics": dict(named_metrics(now)),
        "records": dict(now.totals.records),
        "skipped": dict(now.totals.skipped),
        "errors": dict(now.totals.errors),
        "rows_written": now.totals.rows_written,
        "late": sum(now.totals.late.values()),
        "batches": batches[-_MOST_BATCHES:],
        "history": [list(sample) for sample in history],
        "rebalances": [dict(entry) for entry in details.rebalances],
        "config": dict(details.config),
        "graph": dict(details.graph),
        "plan": list(details.plan),
        "members": dict(details.members),
    }
    # Cut to the bounds beyond which other instances refuse an answer.
    return {key: _cut(value) for key, value in view.items()}


def read_view(answer: object) -> dict[str, Any]:
    """Return the known part of another instance's answer; raises ValueError if it is invalid."""
    view = _read(answer, _SHAPE, "the answer")
    assert isinstance(view, dict)
    return view


def read_group(answer: object) -> dict[str, Any]:
    """Return the known part of an answer of ``/api/group``; raises ValueError if it is invalid."""
    group = _read(answer, _GROUP, "the answer")
    assert isinstance(answer, dict), "it was read"
    if not group["instances"]:
        raise ValueError("the answer has no instance")
    for instance, said in zip(group["instances"], answer["instances"], strict=True):
        instance["view"] = None if said.get("view") is None else read_view(said["view"])
        if (instance["problem"] if instance["view"] is None else instance["age"]) is None:
            raise ValueError("the answer has an instance with neither a view, with its age, nor a problem")
    return dict(group)


def _task(
    thread: ThreadMetadata, task: TaskMetadata, details: InstanceDetails, watermarks: Mapping[str, int]
) -> dict[str, Any]:
    process = thread.process_id
    warming = task.state == "standby" and task.task_id in details.warming.get(process, ())
    return {
        "task": task.task_id,
        "process": process[:8],
        "role": "warming" if warming else "active" if task.state == "running" else task.state,
        "lag": task.lag,
        "since": None if task.replay_began is None else task.replay_began.timestamp(),
        "inputs": [
            {"partition": str(at), "at": task.committed_offsets.get(at), "end": task.end_offsets.get(at)}
            for at in sorted(task.topic_partitions)
        ],
        "state_bytes": details.state_bytes.get((process, task.task_id)),
        "watermarks": dict(watermarks) if task.state == "running" else {},
    }


def _batch(report: Mapping[str, Any]) -> dict[str, Any]:
    ours = report["sparkrelay"]
    return {
        "at": report["timestamp"],
        "batch": report["batchId"],
        "resident": ours["resident"],
        "rows_in": report["numInputRows"],
        "rows_out": report["sink"]["numOutputRows"],
        "late": sum(step["numRowsDroppedByWatermark"] for step in report["stateOperators"]),
        "tasks": sum(map(len, ours["tasks"].values())),
        "ms": dict(report["durationMs"]),
    }


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else f"{value[: _LONGEST_TEXT - 3]}..."
    if isinstance(value, list):
        return [_cut(item) for item in value[:_MOST_ENTRIES]]
    if isinstance(value, dict):
        return {_cut(key): _cut(item) for key, item in list(value.items())[:_MOST_ENTRIES]}
    return value


def _read(value: Any, shape: Any, what: str) -> Any:
    if isinstance(shape, tuple):
        if not isinstance(value, shape) or (isinstance(value, bool) and bool not in shape):
            raise ValueError(f"{what} is a {type(value).__name__}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{what} is {value}")  # such as 1e999
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise ValueError(f"{what} is a number of more than 64 bits")
        if isinstance(value, str) and len(value) > _LONGEST_TEXT:
            raise ValueError(f"{what} has {len(value)} characters")
        return value
    if not isinstance(value, list if isinstance(shape, list) else dict):
        raise ValueError(f"{what} is a {type(value).__name__}")  # noqa: TRY004 - a peer's mistake
    if len(value) > _MOST_ENTRIES:
        raise ValueError(f"{what} has {len(value)} entries")
    return _entries(value, shape, what)


def _entries(value: Any, shape: Any, what: str) -> Any:
    if isinstance(shape, list):
        return [_read(item, shape[0], f"an entry of {what}") for item in value]
    if "" in shape:
        return {_read(key, (str,), f"a key of {what}"): _read(item, shape[""], what) for key, item in value.items()}
    missing = shape.keys() - value.keys()
    if missing:
        raise ValueError(f"{what} has no {min(missing)!r}")
    return {key: _read(value[key], part, repr(key)) for key, part in shape.items()}
