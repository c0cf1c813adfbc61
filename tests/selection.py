"""Which tests a change can reach: `python -m tests.selection [--base REV] [--list]`.

It prints the test files, one a line, or `everything` where all must run; nothing where no test can see the change. The
change is what differs between the merge base of HEAD with `--base` and the working tree, with files that git does not
know yet. Without `--base` it is the upstream branch; where there is none, the branch that origin's HEAD names, or else
HEAD~1. `--list` prints beside each test file how it reaches the change.

A test file reaches what it imports, what it names in strings (modules, scripts that it starts, files, folders), and
the fixtures that it asks for; and these reach what they import and name (`tests/reach.py`). A page of docs/ reaches
what its scripts import. Not followed, on purpose:

- Imports for types alone (`if TYPE_CHECKING`): they are not run.
- What the `__init__` modules above a module import, unless it is imported for its effect, as nobody names it: such a
  module can fail a test only by failing when it is imported, which fails the tests that do reach it.
- A name of a module that a program puts together out of parts.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.reach import PACKAGES, WHOLE, Graph, is_test

ROOT = Path(__file__).parents[1]
#: A file in one of these runs the tests that reach it. If there is none, and for any other file, everything runs.
MAPPED = ("bench/", "charts/", "docker/", "docs/", "ops/", "src/", "tests/", "Dockerfile", "mkdocs.yml")


class Selection(NamedTuple):
    """What must run.

    Attributes:
        tests: each test file, and the files on its way to the change: the last is one that differs.
        everything: why all tests must run; empty if they need not.
    """

    tests: dict[str, tuple[str, ...]]
    everything: str = ""


class Change(NamedTuple):
    """Which files differ.

    Attributes:
        texts: path -> what reads it, of all files there are, and of deleted ones as they were.
        changed: paths of what differs.
        deleted: those of them that are gone.
        base: since which revision.
    """

    texts: dict
    changed: frozenset[str]
    deleted: frozenset[str] = frozenset()
    base: str = ""


def select(change: Change) -> Selection:
    """Return which test files a change can reach."""
    graph = Graph(change.texts)
    tests = {path for path in change.texts if is_test(path) and path not in change.deleted}
    for path in sorted(change.changed):
        if path.endswith(".py") and path.startswith((*PACKAGES, "docs/")):
            continue
        if not path.startswith(MAPPED) and not ("/" not in path and path.endswith(".md")):
            return Selection({}, f"{path} can matter to any test")
        steps = graph.reaching([path])
        if not any((test, WHOLE) in steps for test in tests):
            return Selection({}, f"no test names {path}")
    steps = graph.reaching(change.changed)
    found = {test: _way(steps, (test, WHOLE)) for test in sorted(tests) if (test, WHOLE) in steps}
    return Selection(found, "every test reaches the change" if found.keys() == tests else "")


def _way(steps, node):
    test, files = node[0], {}
    while node := steps[node]:
        files[node[0]] = None
    return tuple(file for file in files if file != test) or (test,)


def change_since(root: Path, base: str | None) -> Change:
    """Return what differs between the merge base of HEAD with `base` and the working tree."""

    def git(*words):
        return subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True, text=True).stdout

    def listed(*words):
        return {path for path in git(*words, "-z").split("\0") if path}

    # A branch of several commits that has no upstream yet is more than its last commit.
    for name in ("@{upstream}", "origin/HEAD") if base is None else ():
        with contextlib.suppress(subprocess.CalledProcessError):
            base = git("rev-parse", "--abbrev-ref", "--symbolic-full-name", name).strip()
            break
    base = base or "HEAD~1"
    start = git("merge-base", "HEAD", base).strip()
    unknown = listed("ls-files", "--others", "--exclude-standard")
    changed = listed("diff", "--name-only", "--no-renames", start) | unknown
    there = {path for path in listed("ls-files") | unknown if (root / path).is_file()}
    deleted = changed - there
    texts = {path: partial((root / path).read_text, encoding="utf-8") for path in there}
    texts |= {path: partial(git, "show", f"{start}:{path}") for path in deleted}
    return Change(texts, frozenset(changed), frozenset(deleted), base)


def main(words: list[str] | None = None, root: Path = ROOT) -> None:
    """Print the selection; what it is since, and why it is everything or nothing, goes to standard error."""
    parser = argparse.ArgumentParser(prog="python -m tests.selection", description=__doc__.partition("\n")[0])
    parser.add_argument("--base", metavar="REV", help="since where it forked off this; else the upstream")
    parser.add_argument("--list", action="store_true", help="say how each test file reaches the change")
    options = parser.parse_args(words)
    try:
        change = change_since(root, options.base)
        tests, everything = select(change)
    except subprocess.CalledProcessError as error:
        parser.error(error.stderr.strip())
    except SyntaxError as error:
        parser.error(f"{error.filename}:{error.lineno or 1}: {error.msg}")
    count = len(change.changed)
    print(f"{count or 'no'} file{'s differ' if count > 1 else ' differs'} from {change.base}", file=sys.stderr)
    if everything:
        print(everything, file=sys.stderr)
        print("everything")
        return
    run = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["testpaths"]
    ours = [test for test in tests if test.startswith(tuple(f"{folder}/" for folder in run))]
    for test in ours:
        print(f"{test}: {' > '.join(tests[test])}" if options.list else test)
    for test in sorted(tests.keys() - set(ours)):
        print(f"{test} is reached, and has a target of its own", file=sys.stderr)
    if change.changed and not ours:
        print("no test of `make test` can reach the change", file=sys.stderr)


if __name__ == "__main__":
    main()
