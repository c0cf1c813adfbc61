"""What a file mentions: imports, names, strings and paths, by the part of the file that mentions them.

A part is what runs together: the module itself when it is imported (`MODULE`), its `if __name__ == "__main__"` block
(`SCRIPT`), or one of its functions. Nothing is resolved here: `tests/reach.py` does that.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
from dataclasses import dataclass, field
from functools import cache

MODULE, SCRIPT = "", "__main__"
_FIXTURE = re.compile(r"(pytest\.)?fixture\b")


@dataclass
class Mentions:
    """What one part mentions.

    Attributes:
        imports: (module, name or None, the name that it is bound to here) of each import statement.
        chains: dotted names as tuples: `a.b.c` is ("a", "b", "c").
        strings: string constants, without docstrings. An f-string has `*` in place of each value.
        heads: those strings that are the first argument of a call, or the first element of a list.
        paths: constants that are joined with `/`: `ROOT / "docs" / "how-to" / name` is "docs/how-to".
    """

    imports: list[tuple[str, str | None, str]] = field(default_factory=list)
    chains: set[tuple[str, ...]] = field(default_factory=set)
    strings: set[str] = field(default_factory=set)
    heads: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)


def of_python(text: str, package: str = "", *, types: bool = False) -> dict[str, Mentions]:
    """Return what each part of a Python source mentions.

    Args:
        text: the source.
        package: the package it is in, for relative imports.
        types: whether imports under `if TYPE_CHECKING` count.
    """
    parts: dict[str, Mentions] = {MODULE: Mentions()}
    for statement in ast.parse(text).body:
        for name, node in _in_parts(statement):
            _Reader(parts.setdefault(name, Mentions()), package, types=types).visit(node)
    return parts


@cache
def fixtures(text: str) -> dict[str, tuple[str, bool]]:
    """Return the fixtures of a conftest.py: name -> (the function's name, whether each test gets it)."""
    found = {}
    for statement in ast.parse(text).body:
        for decorator in getattr(statement, "decorator_list", ()):
            said = ast.unparse(decorator)
            if _FIXTURE.match(said):
                name = re.search(r"\bname='(\w+)'", said)
                found[name[1] if name else statement.name] = statement.name, "autouse=True" in said
    return found


def of_scripts(texts: list[str]) -> dict[str, Mentions]:
    """Return what scripts mention that are embedded in something else, together."""
    found = Mentions()
    for text in texts:
        try:
            tree = ast.parse(textwrap.dedent(text))
        except (SyntaxError, ValueError):
            # Such as a template. Its imports can be read all the same, and each is used in ways that cannot.
            imports = re.findall(r"(?:^|[\n;])\s*((?:from [\w.]+ )?import \w[\w., ]*)", text)
            tree = ast.parse("\n".join(statement.rstrip(" ,.") for statement in imports))
            found.chains.update((alias.name.partition(".")[0],) for node in tree.body for alias in node.names)
        _Reader(found, "").visit(tree)
    return {MODULE: found}


def of_page(path: str, text: str) -> dict[str, Mentions]:
    """Return what the Python scripts of a Markdown page, a notebook or a template mention."""
    if path.endswith(".py.template"):
        return of_scripts([text])
    if path.endswith(".ipynb"):
        cells = json.loads(text)["cells"]
        return of_scripts(["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"])
    return of_scripts(re.findall(r"^ *```python.*?\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL))


def is_code(text: str) -> bool:
    """Return whether a string looks like a script that imports something of ours."""
    return bool(re.search(r"(^|[\n;])\s*(from|import) (\w+, )*(sparkrelay|tests|bench)\b", text))


def _in_parts(statement):
    """Yield (part, node): what runs at import is the module's, and functions are parts of their own.

    A class is the module's, with its methods: its bases may know it. So is a function that a decorator may keep.
    """
    match statement:
        case ast.FunctionDef(decorator_list=decorators) | ast.AsyncFunctionDef(decorator_list=decorators):
            kept = any(not _FIXTURE.match(ast.unparse(decorator)) for decorator in decorators)
            yield (MODULE if kept else statement.name), statement
            defaults = filter(None, (*statement.args.defaults, *statement.args.kw_defaults))
            yield from ((MODULE, node) for node in (*decorators, *defaults))
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            yield from ((SCRIPT, node) for node in statement.body)
            yield from ((MODULE, node) for node in statement.orelse)
        case _:
            yield MODULE, statement


class _Reader(ast.NodeVisitor):
    def __init__(self, into, package, *, types=False):
        self._into = into
        self._package = package
        self._types = types

    def visit_If(self, node):
        if not self._types and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for other in node.orelse:
                self.visit(other)
        else:
            self.generic_visit(node)

    def visit_Import(self, node):
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            self._into.imports.append((alias.name, None, bound if alias.asname else ""))
            if not alias.asname:
                self._into.imports.append((bound, None, bound))

    def visit_ImportFrom(self, node):
        above = self._package.split(".")[: len(self._package.split(".")) - node.level + 1] if node.level else []
        module = ".".join([*above, *([node.module] if node.module else [])])
        for alias in node.names:
            self._into.imports.append((module, alias.name, alias.asname or alias.name))

    def visit_Name(self, node):
        self._into.chains.add((node.id,))

    def visit_arg(self, node):
        # What a test or a fixture asks for.
        self._into.chains.add((node.arg,))
        self.generic_visit(node)

    def visit_Attribute(self, node):
        names = [node.attr]
        while isinstance(node := node.value, ast.Attribute):
            names.append(node.attr)
        if isinstance(node, ast.Name):
            self._into.chains.add((node.id, *reversed(names)))
        else:
            self.visit(node)

    def visit_Expr(self, node):
        # A string alone is a docstring.
        if not isinstance(node.value, ast.Constant):
            self.visit(node.value)

    def visit_Constant(self, node):
        if isinstance(node.value, str):
            self._into.strings.add(node.value)

    def visit_JoinedStr(self, node):
        self._into.strings.add(_pattern(node))
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                self.visit(value.value)

    def visit_Call(self, node):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if node.args and called not in ("format", "getLogger") and (text := _pattern(node.args[0])) is not None:
            self._into.heads.add(text)
        self.generic_visit(node)

    def visit_List(self, node):
        # The words of a command.
        if node.elts and (text := _pattern(node.elts[0])) is not None:
            self._into.heads.add(text)
        self.generic_visit(node)

    def visit_BinOp(self, node):
        if not isinstance(node.op, ast.Div):
            self.generic_visit(node)
            return
        operands = []
        while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            operands.append(node.right)
            node = node.left
        joined = []
        for operand in (node, *reversed(operands)):
            if (text := _pattern(operand)) is not None:
                joined.append(text)
            else:
                self._into.paths.add("/".join(joined))
                joined.clear()
                self.visit(operand)
        self._into.paths.add("/".join(joined))


def _pattern(node):
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(value.value if isinstance(value, ast.Constant) else "*" for value in values)
    return None


def exports(text: str, package: str, modules) -> dict[str, tuple[str, str | None]]:
    """Return what an `__init__` offers of other modules: name -> (module, name there or None for the module).

    It is what it imports, wherever: for types too, or in its `__getattr__`. And what it has in a table, either as
    name -> module, or as the names of modules beside it.
    """
    found: dict[str, tuple[str, str | None]] = {}
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Constant) and value.value in modules:
                    found[key.value] = value.value, key.value
        elif isinstance(node, ast.Constant) and f"{package}.{node.value}" in modules:
            found[node.value] = f"{package}.{node.value}", None
    reader = Mentions()
    _Reader(reader, package, types=True).visit(tree)
    for module, name, bound in reader.imports:
        if name is not None and module in modules and module != package:
            found[bound] = module, name
    return found
