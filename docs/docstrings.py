"""For the site: what docstrings write in reStructuredText, in Markdown. ``mkdocs.yml`` names this file."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

__all__ = ["Docstrings"]

_ROLE = re.compile(r":(?:meth|class|func|attr|data|exc|mod):`(?:~[\w.]*\.)?([^`]+)`")


class Docstrings(Extension):
    """Shows ``:meth:`start``` as code, and what ends in two colons as the introduction of the code below it."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change an object's docstring before it is shown."""
        if obj.docstring is not None:
            text = _ROLE.sub(r"`\1`", obj.docstring.value)
            obj.docstring.value = re.sub(r"::$", ":", text, flags=re.MULTILINE)
