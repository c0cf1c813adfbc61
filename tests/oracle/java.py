"""Running one of the oracles here that are a Java file each: by the libraries among PySpark's jars."""

import subprocess
from pathlib import Path

import pyspark

_JARS = Path(pyspark.__file__).parent / "jars"


def record(folder, given, *jars):
    """Write what an oracle says to its folder's ``cases.jsonl``; return it, and the file name of its main library.

    Args:
        folder: has ``Oracle.java``.
        given: its standard input.
        jars: patterns of its libraries' names, the main one's first.
    """
    path = ":".join(str(jar) for pattern in jars for jar in _JARS.glob(f"{pattern}.jar"))
    command = ["java", "-cp", path, str(folder / "Oracle.java")]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    (folder / "cases.jsonl").write_text(done.stdout)
    return done.stdout, next(_JARS.glob(f"{jars[0]}.jar")).name
