"""Finds Java and checks its version: Spark and the development broker need 17."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from sparkrelay.errors import JavaException

MINIMUM_JAVA = 17
_REMEDY = (
    f"Install a JDK or JRE {MINIMUM_JAVA} or newer (for example 'apt-get install openjdk-17-jre-headless' or "
    "'brew install openjdk@17'), or set JAVA_HOME to one."
)


def java_executable() -> str:
    """Return the java that Spark would start: ``$JAVA_HOME/bin/java``, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None or not os.access(found, os.X_OK):
        where = f"JAVA_HOME={home} holds no bin/java" if home else "there is no java on PATH"
        raise JavaException(f"SparkRelay needs Java {MINIMUM_JAVA}: {where}. {_REMEDY}")
    return found


def require_java() -> str:
    """Return the java executable; raises JavaException if there is none or it is older than 17."""
    executable = java_executable()
    version = _major_version(executable)
    if version < MINIMUM_JAVA:
        raise JavaException(f"SparkRelay needs Java {MINIMUM_JAVA} or newer; {executable} is Java {version}. {_REMEDY}")
    return executable


def java_version() -> int:
    """Return the major version of java, such as 17; raises JavaException if there is none."""
    return _major_version(java_executable())


@functools.cache
def _major_version(executable: str) -> int:
    # With a copy of the environment: another thread may be loading numpy, which changes the process's environment, and
    # then the child could not start (EFAULT).
    answer = subprocess.run(
        [executable, "-version"], env=dict(os.environ), capture_output=True, text=True, check=False, timeout=60
    )
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if match is None:
        raise JavaException(f"{executable} -version printed no version: {answer.stderr.strip()!r}. {_REMEDY}")
    return int(match.group(1))
