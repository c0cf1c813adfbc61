"""Scripts and commands of every page: what no test runs is a script all the same, of names and options that exist.

Most are run by other tests: ``grep -r 'docs"' tests`` shows which.
"""

import ast
import importlib
import re
import shlex
from pathlib import Path

import pytest

from sparkrelay.cli.app import app
from sparkrelay.config import PREFIXES, SECURITY_PREFIXES, StreamsConfig
from sparkrelay.settings import settings_of

ROOT = Path(__file__).parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
}


def blocks(page, *languages):
    """Return the blocks of a page as (line, text)."""
    found = re.finditer(rf"^```(?:{'|'.join(languages)})\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [(page.count("\n", 0, block.start()) + 2, block[1]) for block in found]


def spoken(page):
    """Return whole commands in the text of a page as (line, text)."""
    found = re.finditer(r"(?<!`)`(sparkrelay [a-z][^`]*--[^`]*)`(?!`)", page)
    return [(page.count("\n", 0, command.start()) + 1, command[1].replace("\n", " ")) for command in found]


# An ellipsis stands for the settings that a reader has.
SCRIPTS = {
    f"{name}:{line}": text.replace("{..., ", "{").replace(", ...}", "}")
    for name, page in PAGES.items()
    for line, text in blocks(page, "python")
}


def commands():
    for name, page in PAGES.items():
        if name == "docs/reference/commands.md":
            continue
        for line, text in [*blocks(page, "console", "bash"), *spoken(page)]:
            for number, command in enumerate(text.replace("\\\n", "  ").splitlines(), line):
                words = shlex.shlex(command.removeprefix("$ "), posix=True, punctuation_chars=True)
                words.whitespace_split = True
                if command.startswith("$ ") or not text.startswith("$ "):
                    yield f"{name}:{number}", list(words)


def own_commands():
    for where, words in commands():
        rest = words
        while rest:
            end = next((n for n, word in enumerate(rest) if set(word) <= set("&|;<>()")), len(rest))
            command, rest = rest[:end], rest[end + 1 :]
            if command and command[0].rpartition("/")[2] == "sparkrelay":
                yield pytest.param(command[1:], id=f"{where} {command[1]}")


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_names_and_settings_exist(script):
    tree = ast.parse(script)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "sparkrelay":
            module = importlib.import_module(node.module)
            assert not [name.name for name in node.names if not hasattr(module, name.name)], node.module
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "KafkaStreams":
            known = {setting.key for setting in settings_of(StreamsConfig).values()}
            keys = [key.value for key in getattr(node.args[1], "keys", ()) if isinstance(key, ast.Constant)]
            assert not [key for key in keys if key not in known and not key.startswith((*PREFIXES, *SECURITY_PREFIXES))]


@pytest.mark.parametrize("words", list(own_commands()))
def test_commands_and_options_exist(words):
    app.parse_args(words, exit_on_error=False, print_error=False)


def test_there_is_something_to_look_at():
    assert len(SCRIPTS) > 60
    assert len(list(own_commands())) > 30
