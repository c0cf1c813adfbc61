"""The order of a stress run: see tests/stress.py."""

from __future__ import annotations

import collections
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def shuffled(items: Sequence[object], seed: str) -> list[object]:
    """Return pytest's items with their files in another order, and their tests unless a file is marked `in_order`."""
    dice = random.Random(seed)
    files = collections.defaultdict(list)
    for item in items:
        files[item.path].append(item)
    order = list(files)
    dice.shuffle(order)
    for tests in files.values():
        if not any(test.get_closest_marker("in_order") for test in tests):
            dice.shuffle(tests)
    return [item for file in order for item in files[file]]
