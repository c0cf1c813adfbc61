"""One instance of Java's Kafka Streams, the peer of the same name, running the bench's query.

The query is ``bench/kafka_streams/Instance.java``; it reports as ``bench.instance`` says, with ``up`` in place of
``spark``. This module finds the jars, compiles the query if that has not been done, and then becomes the JVM: same
process id, standard input and output.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench.children import BenchError
from sparkrelay.devkafka.jars import kafka_classpath
from sparkrelay.java import require_java
from sparkrelay.own_files import cache_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["classpath", "with_compiled"]

_SOURCES = sorted((Path(__file__).parent / "kafka_streams").glob("*.java"))
_COMPILER = "jdk.compiler/com.sun.tools.javac.Main"
_TIMEOUT_S = 120


def classpath() -> str:
    """Return the class path of the instance; the first time for a source this fetches jars and compiles.

    Call it before anything is measured.

    Raises:
        BenchError: the source could not be compiled.
        DevKafkaException: the jars could not be fetched.
    """
    return with_compiled(_SOURCES, kafka_classpath(artifact="kafka-streams"), "bench-streams")


def with_compiled(sources: Sequence[Path], jars: str, name: str) -> str:
    """Return a class path of jars and of sources, which are compiled if that has not been done.

    Raises:
        BenchError: they could not be compiled.
    """
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources) + jars.encode()).hexdigest()[:12]
    classes = cache_folder() / f"{name}-{digest}"
    if not classes.is_dir():
        _compile(sources, jars, classes)
    return f"{classes}{os.pathsep}{jars}"


def _compile(sources: Sequence[Path], jars: str, classes: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{classes.name}-", dir=classes.parent) as folder:
        made = Path(folder) / "classes"
        # The compiler is part of a JDK, whether or not there is a javac on PATH. Started so it expands no *.
        path = os.pathsep.join(map(str, Path(jars).parent.glob("*.jar")))
        command = [require_java(), "-m", _COMPILER, "-cp", path, "-d", str(made), "--release", "17"]
        command += map(str, sources)
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
        if run.returncode:
            raise BenchError(
                f"{sources[0].parent} could not be compiled (exit {run.returncode}). Kafka Streams as a peer needs a "
                "JDK of Java 17 or newer, not only a JRE: install one, set JAVA_HOME to one, or leave it out with "
                "--only. Java "
                f"said:\n{(run.stdout + run.stderr)[-2000:].strip()}"
            )
        try:
            made.rename(classes)  # atomic: all classes or none
        except OSError:
            if not classes.is_dir():  # else somebody else was as fast
                raise


def main() -> None:
    """Become the JVM, with the orders of the command line."""
    java = require_java()
    os.execv(java, [java, "-cp", classpath(), "Instance", sys.argv[1]])


if __name__ == "__main__":
    main()
