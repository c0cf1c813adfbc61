"""Java options for the driver's JVM, and a heap that stays small.

On a machine with much memory a JVM starts with a heap of 1/64 of it and with the G1 collector, which fills that heap
before it frees anything: 400 MB on 25 GB, where our pipelines need 60 to 90. On a small machine the JVM chooses the
serial collector and a small heap. ``-XX:+NeverActAsServerClassMachine`` makes it choose so everywhere. The flag names
no collector, so it does not conflict with one that the user names. It would also disable the optimizing compiler;
``-XX:TieredStopAtLevel=4`` keeps it.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

from sparkrelay.java import java_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Spark's launcher adds these options to the driver's JVM only.
_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_SMALL_HEAP: Final = "-XX:+NeverActAsServerClassMachine -XX:TieredStopAtLevel=4 -Xms96m"
#: The newest Java that accepts these flags; a JVM does not start with an unknown one.
_LAST_JAVA: Final = 25
#: Users who set one need a large heap, for which a parallel collector is better.
_MEMORY: Final = ("spark.driver.memory", "SPARK_DRIVER_MEMORY")


def small_heap(settings: Mapping[str, str]) -> str:
    """Return the options for a small heap; empty if the session or the environment sets the heap's size."""
    sized = any(name in settings for name in _MEMORY)
    return "" if sized or java_version() > _LAST_JAVA else _SMALL_HEAP


@contextlib.contextmanager
def added(*options: str) -> Iterator[None]:
    """Add options to every driver JVM started in this block."""
    before = os.environ.get(_OPTIONS)
    # The user's options come last and win.
    os.environ[_OPTIONS] = " ".join(filter(None, [*options, before]))
    try:
        yield
    finally:
        if before is None:
            del os.environ[_OPTIONS]
        else:
            os.environ[_OPTIONS] = before
