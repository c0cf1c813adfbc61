"""An archive of Spark's parsed and verified classes, which the driver's JVM maps into memory (JEP 350).

To start Spark, plan a query and run a first job, a JVM loads some twenty thousand classes from three hundred jars: half
of its CPU time until then. ``sparkrelay prepare`` (``instance.preparing``) has a JVM write them to a file when it ends;
``spark_session()`` passes the file to later ones. The JVM compares the file with its build, the class path, and the
size and age of each jar, and ignores it if anything differs.
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

#: The JVM would warn of an archive that does not fit on standard output.
_SILENT: Final = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def archive_path() -> Path:
    """Return the path of the archive for this Java and this Spark.

    Raises:
        JavaException: there is no Java.
        OSError: the user has no home directory.
    """
    spark = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    names = (Path(java_executable()).resolve(), Path(spark).resolve(), pyspark.__version__)
    return cache_folder() / f"spark-classes-{hashlib.sha256(repr(names).encode()).hexdigest()[:16]}.jsa"


def archive_option() -> str:
    """Return the JVM options for the archive; empty if there is none, or others may have written it."""
    try:
        archive = archive_path()
        usable = archive.is_file() and not (distrust(archive) or distrust(archive.parent))
    except OSError:
        usable = False
    return f"-XX:SharedArchiveFile={archive} {_SILENT}" if usable else ""


@contextlib.contextmanager
def written_at_exit(path: Path) -> Iterator[None]:
    """Have a JVM started in this block write an archive when it ends normally."""
    with added(f"-XX:ArchiveClassesAtExit={path} {_SILENT}"):
        yield
