"""``sparkrelay prepare``: make the first start of an instance as fast as later ones, and all of them faster."""

from __future__ import annotations

import sys


def prepare() -> None:
    """Compile the record codecs, and archive Spark's classes for the JVMs of later starts.

    It takes half a minute and needs no Kafka. Run it once, as the user that runs pipelines and with their Python, and
    again after Java or PySpark has changed. The archive (160 MB) is in the user's cache folder.
    """
    # Late: importing it compiles the codecs, which `--help` does not need.
    from sparkrelay.runtime.instance import preparing  # noqa: PLC0415

    print("Compiling the record codecs, and archiving Spark's classes ...", file=sys.stderr)
    print(preparing.prepare())
