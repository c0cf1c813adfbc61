"""Where numba keeps compiled loops, and whether those of this release are there. Looks at files only, without numba."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["cache_folders", "compiled"]

_SOURCES: Final = Path(__file__).parent


def cache_folders(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the folders in which numba may keep loops of ours."""
    if given := environ.get("NUMBA_CACHE_DIR"):
        return [Path(given)]
    cache = Path(environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return [_SOURCES, cache / "numba"]


def compiled(folders: Iterable[Path] | None = None, sources: Path = _SOURCES) -> bool:
    """Return whether loops were compiled since the newest of their sources was written.

    Args:
        folders: where to look; by default :func:`cache_folders`.
        sources: the folder of the modules with loops.
    """
    written = {path.stem: path.stat().st_mtime for path in sources.rglob("*.py")}
    kept = (
        path.stat().st_mtime
        for folder in (cache_folders() if folders is None else folders)
        for path in folder.rglob("*.nbi")
        if path.name.partition(".")[0] in written
    )
    return max(kept, default=0.0) >= max(written.values())
