"""Write the methods of ``AsyncConsumer`` from those of ``Consumer``: the same calls, awaited.

    python -m scripts.generate_async_consumer [--check]

Run it after a change of ``consumer.py``; a test says when it is due. What differs on purpose is a rule below.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

API = Path(__file__).parents[1] / "src" / "sparkrelay" / "consumer" / "api"
SOURCE, TARGET = API / "consumer.py", API / "async_consumer.py"
#: Between these lines of both files.
FIRST, LAST = "    # -- subscription ", "    # -- closing "
RULES = (
    (r"^    def ", "    async def "),
    (r"\bself\._run\(", "await self._run("),
    # What may return at once, again and again, lets other tasks run first.
    (r"(self\._run\(self\._session\.(?:poll|records)\([^()]*\))\)", r"\1, yields=True)"),
    # Callbacks may be coroutine functions here.
    (r"        self\._require_plain\(.*\)\n", ""),
    # Only the first lines of docstrings, which IDEs show; the class refers to Consumer for the rest.
    (r'("""[^"\n]+)\n\n(?:(?!""").|\n)*"""', r'\1"""'),
    (r"-> Future\[None\]:", "-> asyncio.Future[None]:"),
    (r"return (self\._call\(lambda: self\._session\.commit_async\(.*\)\))", r"return _awaitable(\1)"),
)


def generated() -> str:
    """Return what the target is to be."""
    methods = _between(SOURCE.read_text(encoding="utf-8"))[1]
    for pattern, replacement in RULES:
        methods, count = re.subn(pattern, replacement, methods, flags=re.MULTILINE)
        if not count:
            raise ValueError(f"{SOURCE.name} has nothing that {pattern!r} is for")
    before, _, behind = _between(TARGET.read_text(encoding="utf-8"))
    ruff = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(TARGET), "-"]
    return subprocess.run(ruff, input=f"{before}{methods}{behind}", capture_output=True, text=True, check=True).stdout


def _between(text: str) -> tuple[str, str, str]:
    first, last = text.index(FIRST), text.index(LAST)
    return text[:first], text[first:last], text[last:]


if __name__ == "__main__":
    if sys.argv[1:] != ["--check"]:
        TARGET.write_text(generated(), encoding="utf-8")
    elif generated() != TARGET.read_text(encoding="utf-8"):
        sys.exit("AsyncConsumer is out of date: run python -m scripts.generate_async_consumer")
