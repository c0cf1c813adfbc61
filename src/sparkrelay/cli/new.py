"""``sparkrelay new``: a project that runs, to begin with."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from sparkrelay.devkafka import KAFKA_VERSION
from sparkrelay.errors import ConfigException

__all__ = ["new"]

_TEMPLATES: Final = Path(__file__).parent / "new_project"
_SUFFIX: Final = ".template"
#: Files whose names begin with a dot are not called so here, or they would work here.
_HIDDEN: Final = ("gitignore", "dockerignore")
#: What a consumer group, a topic, a Docker image and a Compose project may all be called.
_NAME: Final = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
_LONGEST: Final = 60


def new(
    name: Annotated[str, Parameter(help="The folder to make, which is the application.id as well.")],
    /,
) -> int:
    """Write a project that runs into a new folder NAME: a pipeline, its tests, a Dockerfile and a compose.yaml.

    A folder that is there has to be empty. Either all of the project is written or nothing.
    """
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise ConfigException(
            f"{name!r} is no name for a project: lower-case letters, digits, and single - or _ between them, a letter "
            f"first, at most {_LONGEST} characters, such as order-totals. It names a folder here, the application.id "
            "and a Docker image."
        )
    folder = Path(name)
    known = {"name": name, "pin": _pin(version("sparkrelay")), "kafka_version": KAFKA_VERSION}
    unfinished = Path(tempfile.mkdtemp(prefix=f".{name}-", dir="."))
    try:
        _write(unfinished, known)
        _publish(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    print(f"{folder}: made. Go on with {folder / 'README.md'}")
    return 0


def _pin(release: str) -> str:
    """Return what requirements.txt says of the version: a build of a checkout is found again by no number."""
    return "" if ".dev" in release else f"=={release}"


def _write(folder: Path, known: dict[str, str]) -> None:
    """Write each template's text, with what is between double braces put in."""
    for template in sorted(_TEMPLATES.rglob(f"*{_SUFFIX}")):
        path = folder / template.relative_to(_TEMPLATES).with_suffix("")
        if path.name in _HIDDEN:
            path = path.with_name(f".{path.name}")
        text = re.sub(r"\{\{(\w+)\}\}", lambda found: known[found[1]], template.read_text())
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def _publish(unfinished: Path, folder: Path) -> None:
    """Give a folder its name, which takes the place of an empty folder and of nothing else."""
    mask = os.umask(0)
    os.umask(mask)
    unfinished.chmod(0o777 & ~mask)
    try:
        unfinished.rename(folder)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
            raise ConfigException(
                f"{folder} is there already, and is not an empty folder: nothing was written. Choose another name, or "
                "move it away."
            ) from error
        raise
