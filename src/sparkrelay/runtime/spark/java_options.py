"""Options of the driver's JVM, beside those of the user's, which win; and a heap that takes what it needs.

A JVM on a machine of some memory begins with a heap of a 64th of it, and with the collector G1, which touches all of
that before it frees anything: 400 MB on 25 GB, of which our pipelines need 60 to 90. On a small machine it chooses the
serial collector, which begins again at the first bytes. ``-XX:+NeverActAsServerClassMachine`` has it choose so on any.
It names no collector, so one that the user names is no contradiction. That flag would also leave out the better of the
two compilers, but for ``-XX:TieredStopAtLevel``.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

from sparkrelay.java import java_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["added", "small_heap"]

#: What Spark's launcher adds to the driver's command line, and to no other JVM's.
_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_SMALL_HEAP: Final = "-XX:+NeverActAsServerClassMachine -XX:TieredStopAtLevel=4 -Xms96m"
#: The newest Java that is known to have these: an option that a JVM does not know keeps it from starting.
_LAST_JAVA: Final = 25
#: Whoever sets one has work of their own for the heap, which a collector for several cores does faster.
_MEMORY: Final = ("spark.driver.memory", "SPARK_DRIVER_MEMORY")


def small_heap(settings: Mapping[str, str]) -> str:
    """Return the options with which a heap of the usual size takes what it needs; none where its size is set.

    Args:
        settings: the session's, and the environment's variables.
    """
    sized = any(name in settings for name in _MEMORY)
    return "" if sized or java_version() > _LAST_JAVA else _SMALL_HEAP


@contextlib.contextmanager
def added(*options: str) -> Iterator[None]:
    """Have a JVM that is started in this block get these options; empty ones are left out."""
    before = os.environ.get(_OPTIONS)
    # The user's own come last, and win.
    os.environ[_OPTIONS] = " ".join(filter(None, [*options, before]))
    try:
        yield
    finally:
        if before is None:
            del os.environ[_OPTIONS]
        else:
            os.environ[_OPTIONS] = before
