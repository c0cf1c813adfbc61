"""Run our assignment code on recorded answers of Kafka Streams' Java classes and compare.

    python tests/oracle/replay.py FILE...

Where ``hash_order_sensitive`` is false the answers must be equal. Where it is true Java's answer hangs on the order of
its hash tables, and ours has to be as good: valid, as balanced, as sticky, with as many standbys and no more traffic
across racks. Wire vectors are compared as bytes where ``byte_exact`` is true, else decoded. Of errors the class is
compared: the wording is ours.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    # As a script it finds its own folder only.
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.oracle.assign_ops import MalformedInput, run_operation

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]


def differences(case: Json) -> list[str]:
    """Return what is wrong with our answer to a case; nothing if it passes."""
    try:
        ours = run_operation(case["op"], case["input"])
    except MalformedInput as error:
        return [f"not answered: {error}"]
    expected = case["expected"]
    if isinstance(expected.get("error"), dict):
        got = ours.get("error")
        wanted = expected["error"]["class"]
        found = got["class"] if isinstance(got, dict) else "no error"
        return [] if found == wanted else [f"error: Java {wanted}, ours {found}"]
    if "hex" in expected:
        return _wire_differences(case, ours)
    if case["op"] == "sticky_preserve":
        expected, ours = _anonymous_followup(expected), _anonymous_followup(ours)
    if case.get("hash_order_sensitive"):
        return list(_quality_differences(case["input"], expected, ours))
    return [
        f"{key}: Java {_short(value)}, ours {_short(ours.get(key))}"
        for key, value in expected.items()
        if ours.get(key) != value
    ]


def _wire_differences(case: Json, ours: Json) -> list[str]:
    expected = case["expected"]
    if "hex" not in ours:
        return [f"hex: ours is {_short(ours)}"]
    if case.get("byte_exact") or "decoded" not in expected:
        return [] if ours["hex"] == expected["hex"] else [f"hex: Java {expected['hex']}, ours {ours['hex']}"]
    decode = case["op"].replace("_encode", "_decode")
    wrong = []
    for whose, data in (("Java's", expected["hex"]), ("our", ours["hex"])):
        decoded = run_operation(decode, {"hex": data})
        if decoded != expected["decoded"]:
            wrong.append(f"{whose} bytes decode to {_short(decoded)}, not {_short(expected['decoded'])}")
    return wrong


def _anonymous_followup(answer: Json) -> Json:
    # Which client has the follow-up is hash order.
    return {**answer, "followup": sorted(answer.get("followup", {}).values())}


def _quality_differences(given: Json, expected: Json, ours: Json) -> Iterator[str]:
    if "assignment" not in ours:
        yield f"ours is {_short(ours)}"
        return
    java, mine = expected["assignment"], ours["assignment"]
    if mine.keys() != java.keys():
        yield f"clients: Java {sorted(java)}, ours {sorted(mine)}"
        return
    actives = Counter(task for client in mine.values() for task in client["active"])
    if actives != Counter(task for client in java.values() for task in client["active"]):
        yield f"active tasks: {_short(actives)}"
    for process, client in mine.items():
        both = set(client["active"]) & set(client["standby"])
        if both or len(set(client["standby"])) < len(client["standby"]):
            yield f"client {process} holds a task twice: {_short(client)}"
    standbys, java_standbys = (
        Counter(task for client in side.values() for task in client["standby"]) for side in (mine, java)
    )
    if standbys != java_standbys:
        yield f"standbys of each task: Java {_short(java_standbys)}, ours {_short(standbys)}"
    capacity, previous = _capacities_and_actives(given)
    spread, java_spread = _spread(mine, capacity), _spread(java, capacity)
    if spread > java_spread + 1e-9:
        yield f"spread of tasks per thread: Java {java_spread:.3f}, ours {spread:.3f}"
    kept, java_kept = (
        sum(len(previous[process] & set(client["active"])) for process, client in side.items()) for side in (mine, java)
    )
    if kept < java_kept:
        yield f"previous actives kept: Java {java_kept}, ours {kept}"
    for key in ("active_cross_rack", "standby_cross_rack"):
        if key in expected and ours.get(key, float("inf")) > expected[key]:
            yield f"{key}: Java {expected[key]}, ours {ours.get(key)}"
    for key in ("probing_rebalance", "validation", "rack_aware_enabled"):
        if key in expected and ours.get(key) != expected[key]:
            yield f"{key}: Java {expected[key]}, ours {ours.get(key)}"


def _capacities_and_actives(given: Json) -> tuple[dict[str, int], dict[str, set[str]]]:
    capacity, previous = {}, {}
    owner = {
        (partition["topic"], partition["partition"]): task["id"]
        for task in given["tasks"]
        for partition in task.get("input_partitions")
        or [{"topic": f"in-{task['id'].split('_')[0]}", "partition": int(task["id"].split("_")[1])}]
    }
    for client in given["clients"]:
        process = client["process_id"]
        consumers = client.get("consumers")
        capacity[process] = len(consumers) if consumers is not None else client.get("threads", 1)
        previous[process] = set(client.get("prev_active", ()))
        for consumer in consumers or ():
            sums = consumer.get("offset_sums", {})
            previous[process] |= {task for task, total in sums.items() if total == -2}
            owned = (tuple(partition) for partition in consumer.get("owned_partitions", ()))
            previous[process] |= {owner[partition] for partition in owned if partition in owner}
    return capacity, previous


def _spread(assignment: Json, capacity: dict[str, int]) -> float:
    loads = [
        (len(client["active"]) + len(client["standby"])) / capacity[process] for process, client in assignment.items()
    ]
    return max(loads) - min(loads)


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 160 else text[:157] + "..."


def replay(paths: list[Path]) -> tuple[int, int]:
    """Compare every case of the files, naming each that fails; return how many passed and failed."""
    passed = failed = 0
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.strip():
                continue
            case = json.loads(line)
            wrong = differences(case)
            if wrong:
                failed += 1
                sys.stdout.write(f"FAILED {path.name} {case['name']} ({case['op']}): {'; '.join(wrong)}\n")
            else:
                passed += 1
    return passed, failed


def main(arguments: list[str]) -> int:
    """Replay the files named on the command line."""
    if not arguments:
        sys.stderr.write("usage: python tests/oracle/replay.py FILE...\n")
        return 2
    passed, failed = replay([Path(argument) for argument in arguments])
    sys.stdout.write(f"{passed} passed, {failed} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
