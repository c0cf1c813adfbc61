"""Sections of docs/how-to, and the scripts in them: tests run these as they stand there."""

import re
from pathlib import Path

HOW_TO = Path(__file__).parents[1] / "docs" / "how-to"


def section(heading):
    """Return the text under the heading of this name, up to the next one that is as high."""
    found = [text for path in sorted(HOW_TO.glob("*.md")) for text in _sections(path, heading)]
    (text,) = found
    return text


def _sections(path, heading):
    level, lines, fenced = 0, [], False
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        fenced ^= line.startswith("```")
        # A comment in a script is no heading.
        mark = None if fenced else re.match(r"(#+) (.*)", line)
        if level and mark and len(mark[1]) <= level:
            yield "".join(lines)
            level = 0
        if level:
            lines.append(line)
        elif mark and mark[2] == heading:
            level, lines = len(mark[1]), []
    if level:
        yield "".join(lines)


def scripts(heading):
    """Return the Python scripts of a section."""
    return _blocks(heading, "python")


def sql(heading):
    """Return the SQL scripts of a section."""
    return _blocks(heading, "sql")


def titled(heading, title):
    """Return the Python script of a section that has this title."""
    (script,) = _blocks(heading, f'python title="{title}"')
    return script


def _blocks(heading, language):
    found = re.findall(rf"^```{language}\n(.*?)^```$", section(heading), re.MULTILINE | re.DOTALL)
    assert found, heading
    return found


def run(heading, **names):
    """Run the scripts of a section; return what they have defined."""
    for script in scripts(heading):
        exec(compile(script, heading, "exec"), names)
    return names
