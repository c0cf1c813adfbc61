"""Spark's classes, parsed and checked once: an archive that the driver's JVM maps into its memory (JEP 350).

A JVM that starts Spark, plans a query and runs a first job loads some twenty thousand classes from three hundred jars:
half of the processor time that it takes until then. ``sparkrelay prepare`` (``instance.preparing``) has one JVM write
them to a file when it ends; ``spark_session()`` names that file to later ones. The JVM itself compares it with its own
build, the class path, and the size and age of each jar, and where anything differs it goes on without the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark

from sparkrelay.java import java_executable
from sparkrelay.own_files import cache_folder, distrust
from sparkrelay.runtime.spark.java_options import added

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["archive_option", "archive_path", "written_at_exit"]

#: An archive that does not fit is no news for who runs a pipeline; the JVM would warn on standard output.
_SILENT: Final = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def archive_path() -> Path:
    """Return where the archive is, or would be, of this Java with this Spark.

    Raises:
        JavaException: there is no Java.
        OSError: the user has no home directory.
    """
    spark = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    names = (Path(java_executable()).resolve(), Path(spark).resolve(), pyspark.__version__)
    return cache_folder() / f"spark-classes-{hashlib.sha256(repr(names).encode()).hexdigest()[:16]}.jsa"


def archive_option() -> str:
    """Return the options that name the archive, if there is one that nobody else can have written; else none."""
    try:
        archive = archive_path()
        usable = archive.is_file() and not (distrust(archive) or distrust(archive.parent))
    except OSError:
        usable = False
    return f"-XX:SharedArchiveFile={archive} {_SILENT}" if usable else ""


@contextlib.contextmanager
def written_at_exit(path: Path) -> Iterator[None]:
    """Have a JVM that is started in this block write an archive when it ends in good order."""
    with added(f"-XX:ArchiveClassesAtExit={path} {_SILENT}"):
        yield
