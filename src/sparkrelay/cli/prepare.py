"""``sparkrelay prepare``: have the first start of an instance be as quick as later ones, and all of them quicker."""

from __future__ import annotations

import sys

__all__ = ["prepare"]


def prepare() -> int:
    """Compile the record codecs, and archive Spark's classes for the JVMs that later starts begin.

    It takes half a minute and needs no Kafka. Run it once, as the user that runs pipelines, with the Python that runs
    them, and again after Java or PySpark has changed. The archive (160 MB) goes to the user's cache folder.
    """
    # Late: to import it is to compile the codecs, and `sparkrelay prepare --help` need not wait for that.
    from sparkrelay.runtime.instance import preparing  # noqa: PLC0415

    print("Compiling the record codecs, and archiving Spark's classes ...", file=sys.stderr)
    print(preparing.prepare())
    return 0
