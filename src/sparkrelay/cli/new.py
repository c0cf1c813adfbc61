"""``sparkrelay new``: create a project that runs."""

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

_TEMPLATES: Final = Path(__file__).parent / "new_project"
_SUFFIX: Final = ".template"
#: Files whose names get a leading dot; with it they would be effective in our own repository.
_HIDDEN: Final = ("gitignore", "dockerignore")
#: Names that a consumer group, a topic, a Docker image and a Compose project can all have.
_NAME: Final = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
_LONGEST: Final = 60


def new(
    name: Annotated[str, Parameter(help="The folder to create; also the application.id.")],
    /,
) -> None:
    """Create a project in a new folder NAME: a pipeline, its tests, a Dockerfile and a compose.yaml.

    An existing folder must be empty. The project is written completely or not at all.
    """
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise ConfigException(
            f"{name!r} cannot name a project: use lower-case letters, digits, and single - or _ between them, "
            f"beginning with a letter, at most {_LONGEST} characters, such as order-totals. It names a folder, the "
            "application.id and a Docker image."
        )
    folder = Path(name)
    release = version("sparkrelay")
    # A build of a checkout has no version that pip could find.
    pin = "" if ".dev" in release else f"=={release}"
    known = {"name": name, "pin": pin, "kafka_version": KAFKA_VERSION}
    unfinished = Path(tempfile.mkdtemp(prefix=f".{name}-", dir="."))
    try:
        _write(unfinished, known)
        _publish(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    print(f"{folder}: created. Continue with {folder / 'README.md'}")


def _write(folder: Path, known: dict[str, str]) -> None:
    """Write the templates' files, replacing what is in double braces."""
    for template in sorted(_TEMPLATES.rglob(f"*{_SUFFIX}")):
        path = folder / template.relative_to(_TEMPLATES).with_suffix("")
        if path.name in _HIDDEN:
            path = path.with_name(f".{path.name}")
        text = re.sub(r"\{\{(\w+)\}\}", lambda found: known[found[1]], template.read_text())
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def _publish(unfinished: Path, folder: Path) -> None:
    """Rename the finished folder; the target may only be missing or an empty folder."""
    mask = os.umask(0)
    os.umask(mask)
    unfinished.chmod(0o777 & ~mask)
    try:
        unfinished.rename(folder)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
            raise ConfigException(
                f"{folder} exists already and is not an empty folder: nothing was written. Choose another name, or "
                "move it away."
            ) from error
        raise
