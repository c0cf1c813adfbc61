"""Record what Kafka's own assignors answer for random groups: ``python record.py CLASSPATH > answers.jsonl``.

See README.md. Run by hand when Kafka's assignors change; the tests only read the result.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

_GROUPS = 180


def random_group(rnd: random.Random) -> dict[str, object]:
    """Return a group: topics with their numbers of partitions, members, and racks in every third."""
    topics = {f"t{n}": rnd.choice([1, 2, 3, 4, 4, 6, 8]) for n in range(rnd.randint(1, 4))}
    racks = list("abc")[: rnd.choice([0, 0, 2, 3])]
    alike = rnd.random() < 0.5
    members: dict[str, dict[str, object]] = {}
    everything = [(t, p) for t, n in topics.items() for p in range(n)]
    claims: set[tuple[str, int, int]] = set()
    for number in range(rnd.randint(1, 7)):
        wanted = sorted(topics) if alike else sorted(rnd.sample(sorted(topics), rnd.randint(1, len(topics))))
        member: dict[str, object] = {"topics": wanted}
        if rnd.random() < 0.2:
            member["instance"] = f"i{rnd.randint(0, 99):02}-{number}"
        if racks and rnd.random() < 0.9:
            member["rack"] = rnd.choice(racks)
        if rnd.random() < 0.7:
            member["generation"] = generation = rnd.choice([7, 7, 7, 5])
            owned: dict[str, list[int]] = {}
            share = rnd.choice([0.2, 0.6])
            for topic, partition in everything:
                # Two may claim the same, but not in the same generation.
                if topic in wanted and (topic, partition, generation) not in claims and rnd.random() < share:
                    owned.setdefault(topic, []).append(partition)
                    claims.add((topic, partition, generation))
            if owned:
                member["owned"] = owned
        members[f"m{rnd.randint(0, 999):03}-{number}"] = member
    group: dict[str, object] = {"topics": topics, "members": members}
    if racks:
        group["racks"] = {
            t: [sorted(rnd.sample(racks, rnd.randint(1, 2))) for _ in range(n)] for t, n in topics.items()
        }
    return group


def main() -> None:
    """Write a line for each group: the group, and what Java answered."""
    rnd = random.Random(20261121)
    groups = [random_group(rnd) for _ in range(_GROUPS)]
    command = ["java", "-cp", sys.argv[1], str(Path(__file__).with_name("Answers.java"))]
    lines = "\n".join(json.dumps(group) for group in groups)
    run = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=True)
    for group, answer in zip(groups, run.stdout.splitlines(), strict=True):
        print(json.dumps(group | {"java": json.loads(answer)}, separators=(",", ":")))


if __name__ == "__main__":
    main()
