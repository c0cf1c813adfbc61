"""The import path of workers: folders instead of archives with the same modules.

Spark puts ``pyspark.zip``, py4j's archive and its own jar at the start of a worker's path. Python compiles imports from
an archive every time. For each package it also keeps an index of the whole archive, which every new worker reads again
in its first task. Measured on a slow core: a second for the daemon, 0.3 s and 20 MB for each worker.
"""

from __future__ import annotations

import os
import re
import sys
import zipimport
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Archive -> the package in it.
_PACKAGES: Final = {re.compile(r"pyspark\.zip"): "pyspark", re.compile(r"py4j-.*-src\.zip"): "py4j"}
#: Spark's jar has no Python modules.
_JAR: Final = re.compile(r"spark-core_.*\.jar")


def prefer_folders(path: list[str] | None = None) -> None:
    """Remove Spark's archives from the import path, if it has a folder with the same release of their package.

    ``path`` is by default that of this process, which must not have imported anything from them yet.
    """
    path = sys.path if path is None else path
    needless = [archive for archive in path if _is_needless(archive, path)]
    path[:] = [entry for entry in path if entry not in needless]
    inside = tuple(archive + os.sep for archive in needless)
    for known in list(sys.path_importer_cache):
        if f"{known}{os.sep}".startswith(inside):
            del sys.path_importer_cache[known]
    for name, module in list(sys.modules.items()):
        # Such as ``org``: the standard library probes for Jython's, and finds that folder in Spark's jar.
        places = list(getattr(module, "__path__", ()))
        if places and all(f"{place}{os.sep}".startswith(inside) for place in places):
            del sys.modules[name]


def _is_needless(archive: str, path: Iterable[str]) -> bool:
    name = Path(archive).name
    if _JAR.fullmatch(name):
        return True
    package = next((package for pattern, package in _PACKAGES.items() if pattern.fullmatch(name)), None)
    if package is None:
        return False
    try:
        release = zipimport.zipimporter(archive).get_data(f"{package}/version.py")
    except (zipimport.ZipImportError, OSError):
        return False
    return any(_content(Path(folder, package, "version.py")) == release for folder in path)


def _content(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None
