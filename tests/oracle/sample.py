"""Choose the sample of assignment cases that lives in the repository.

    python tests/oracle/sample.py FROM_FOLDER

Short cases first, up to a budget a file: the repository stays small, and `make test` needs nothing beside it.
"""

from __future__ import annotations

import sys
from pathlib import Path

#: Bytes a file of cases may have; the small hand-written files are taken whole.
BUDGETS = {
    "convergence": 45_000,
    "group": 40_000,
    "ha": 55_000,
    "quirks": 15_000,
    "rack": 35_000,
    "standbys": 45_000,
    "sticky": 25_000,
    "tags": 25_000,
    "threads": 15_000,
    "validate": 15_000,
    "wire": 35_000,
}
TARGET = Path(__file__).parent / "cases"


def main(source: Path) -> None:
    """Write the sample."""
    for name, budget in BUDGETS.items():
        lines = (source / f"{name}.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        chosen: set[int] = set()
        size = 0
        for index in sorted(range(len(lines)), key=lambda index: len(lines[index])):
            size += len(lines[index].encode())
            if size > budget:
                break
            chosen.add(index)
        (TARGET / f"{name}.jsonl").write_text("".join(lines[index] for index in sorted(chosen)), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
