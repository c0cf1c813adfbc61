"""Whether numba's cache has the compiled loops of this release. Looks at files only, without numba."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SOURCES: Final = Path(__file__).parent
#: In the names of numba's files.
_PYTHON: Final = f"py{sys.version_info.major}{sys.version_info.minor}"


def cache_folders(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the folders in which numba may cache the loops."""
    if given := environ.get("NUMBA_CACHE_DIR"):
        return [Path(given)]
    cache = Path(environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return [_SOURCES, cache / "numba"]


def compiled(folders: Iterable[Path] | None = None, sources: Path = _SOURCES) -> bool:
    """Return whether the folders, by default :func:`cache_folders`, hold loops, none older than its source."""
    written = {path.stem: path.stat().st_mtime for path in sources.rglob("*.py")}
    kept: dict[str, float] = {}
    for folder in cache_folders() if folders is None else folders:
        for path in folder.rglob(f"*.{_PYTHON}.nbi"):
            stem = path.name.partition(".")[0]
            kept[stem] = max(kept.get(stem, 0.0), path.stat().st_mtime)
    ours = kept.keys() & written.keys()
    return bool(ours) and all(kept[stem] >= written[stem] for stem in ours)
