"""What reaches what among the files of a project: by imports, and by names of modules, files and folders in strings.

A name is followed to the module that defines it: who imports `TopologyTestDriver` from `sparkrelay.testing` reaches
that class's module and the text of `testing/__init__.py`, and not all else that this file imports. So is a function:
what it imports is reached by who names the function, or uses its module in a way that cannot be followed.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from fnmatch import fnmatchcase
from functools import cache, cached_property, partial
from pathlib import PurePosixPath

from tests import mentions
from tests.mentions import MODULE

#: Where modules are: folder -> what their names begin with.
PACKAGES = {"src/": "", "tests/": "tests.", "bench/": "bench."}

# A node is (path, part of it). These are no parts: its text alone, and all parts together; and a folder's files.
TEXT, WHOLE, FOLDER = "its text", "all of it", "its files"

_DOTTED = re.compile(r"(?<![\w./-])(?:sparkrelay|tests|bench)(?:\.[\w*]+)+(?::\w+)?")


class Graph:
    """The nodes of a project, and their links.

    Args:
        texts: path -> what reads the file; paths have `/` and begin at the project's root.
        types: whether imports for types alone count.
    """

    def __init__(self, texts, *, types=False):
        self._texts = texts
        self._types = types
        self._modules, self._spaces, self._folders = {}, set(), set()
        self._paths = defaultdict(list)
        for path in sorted(texts):
            self._paths[PurePosixPath(path).name].append(path)
            self._folders.update(str(folder) for folder in PurePosixPath(path).parents[:-1])
            for folder, prefix in PACKAGES.items():
                if path.startswith(folder) and path.endswith(".py"):
                    name = prefix + path.removeprefix(folder).removesuffix(".py").replace("/", ".")
                    self._modules[name.removesuffix(".__init__")] = path
        self._names = {path: module for module, path in self._modules.items()}
        for module in self._modules:
            self._spaces.update(_above(module))

    def reaching(self, paths):
        """Return what reaches one of these files: node -> the node that it reaches, one step nearer to the file."""
        steps = {(path, TEXT): None for path in paths}
        waiting = deque(steps)
        while waiting:
            node = waiting.popleft()
            for other in sorted(self._reached_by[node] - steps.keys()):
                steps[other] = node
                waiting.append(other)
        return steps

    @cached_property
    def _reached_by(self):
        found = defaultdict(set)
        for node, reached in self.links.items():
            for other in reached:
                found[other].add(node)
        return found

    @cached_property
    def links(self):
        """What each node reaches at once: node -> nodes."""
        links = defaultdict(set)
        for path in self._texts:
            links[path, MODULE].add((path, TEXT))
            links[path, WHOLE] |= {(path, TEXT), (path, MODULE)}
            for part, found in self._mentions(path).items():
                links[path, WHOLE].add((path, part))
                links[path, part] |= {(path, TEXT if part == MODULE else MODULE)} | self._reached(path, found)
            if is_test(path) or path.endswith("/conftest.py"):
                self._link_fixtures(path, links)
            if path.endswith("/__init__.py"):
                self._link_package(path, links)
        for folder in self._folders:
            links[folder, FOLDER] = {_read(path) for path in self._texts if path.startswith(f"{folder}/")}
        return links

    def _link_fixtures(self, path, links):
        """Link a file of tests, or of fixtures, to every conftest.py above it, and to the fixtures that it names."""
        files = [f"{folder}/conftest.py" for folder in PurePosixPath(path).parents]
        for file in (each for each in files if each in self._texts):
            fixtures = self._parsed(file, mentions.fixtures)
            if file == path:
                every = {part for part, always in fixtures.values() if always}
                hooks = {part for part in self._mentions(path) if part.startswith("pytest_")}
                links[path, MODULE] |= {(path, part) for part in every | hooks}
            else:
                links[path, MODULE].add((file, MODULE))
            # What the module of a conftest.py names is its own fixtures: it says what they are called.
            parts = self._mentions(path).items()
            for part, found in (each for each in parts if file != path or each[0] != MODULE):
                names = fixtures.keys() & (found.strings | {first for first, *_ in found.chains})
                links[path, part] |= {(file, fixtures[name][0]) for name in names}

    def _link_package(self, path, links):
        for name in self._exports(path):
            links[path, WHOLE] |= self._named(self._names[path], (name,))
        # Data that are read by the name of the package.
        folder = path.removesuffix("/__init__.py")
        beside = (data for data in self._texts if data.rpartition("/")[0] == folder)
        links[path, WHOLE] |= {(data, TEXT) for data in beside if not data.endswith(".py")}
        # What it imports and does not offer is imported for its effect.
        found = self._mentions(path)[MODULE]
        for module, name, bound in found.imports:
            chain = (bound,) if bound else tuple(module.split("."))
            used = bound in found.strings or any(each[: len(chain)] == chain for each in found.chains)
            if not used and module in self._modules and module not in _above(self._names[path]):
                links[path, TEXT] |= self._named(module, (name,) if name else ())

    @cache  # noqa: B019 - a graph lives as long as the program
    def _mentions(self, path):
        if not path.endswith((".py", ".md", ".ipynb", ".py.template")):
            return {}
        if not path.endswith(".py"):
            return self._parsed(path, partial(mentions.of_page, path))
        module = self._names.get(path, "")
        package = module if path.endswith("/__init__.py") else module.rpartition(".")[0]
        return self._parsed(path, partial(mentions.of_python, package=package, types=self._types))

    @cache  # noqa: B019
    def _exports(self, path):
        """Return what a package offers of others: name -> (module, name)."""
        return self._parsed(path, partial(mentions.exports, package=self._names[path], modules=self._modules))

    def _parsed(self, path, parse):
        """Return what `parse` makes of a file's text; raise a SyntaxError that names the file where it cannot."""
        try:
            return parse(self._texts[path]())
        except SyntaxError as error:
            error.filename = path
            raise
        except ValueError as error:
            # Its text is no UTF-8, or a notebook is no JSON.
            raise SyntaxError(str(error), (path, getattr(error, "lineno", 1), None, None)) from error

    # --- What a part of a file reaches.

    def _reached(self, path, found, *, embedded=False):
        parts = {} if embedded else self._mentions(path)
        nodes, aliases = set(), {}
        for scope in (parts.get(MODULE, found), found):
            for module, name, bound in scope.imports:
                if name is None or self._is_module(module, name):
                    aliases[bound] = module if name is None else f"{module}.{name}"
        for module, name, _ in found.imports:
            nodes |= self._imported(path, module)
            if name is not None and self._is_module(module, name):
                nodes |= self._imported(path, f"{module}.{name}")
            elif name is not None:
                nodes |= self._named(module, () if name == "*" else (name,))
        for first, *rest in found.chains:
            if first in aliases:
                nodes |= self._named(aliases[first], tuple(rest))
            if first in parts:
                nodes.add((path, first))
        for text in found.strings:
            nodes |= self._said(path, text)
            nodes |= self._files(path, text, joined=False)
        for text in found.paths:
            nodes |= self._files(path, text, joined=True)
        if "sparkrelay" in found.heads and not path.startswith("src/"):
            # The command, the wheel, all modules, or all loggers.
            nodes.add(("src/sparkrelay", FOLDER))
        return nodes

    def _is_module(self, module, name):
        path, inner = self._modules.get(module, ""), f"{module}.{name}"
        offered = path.endswith("/__init__.py") and name in self._exports(path)
        return not offered and (inner in self._modules or inner in self._spaces)

    def _imported(self, path, module):
        """Return what an import of this module runs, whatever is used of it."""
        found = self._modules.get(module)
        if found is None:
            # A script imports what is beside it.
            beside = f"{path.rpartition('/')[0]}/{module}.py"
            return {(beside, WHOLE)} if beside in self._texts and not path.startswith("src/") else self._inits(module)
        return {(found, TEXT if found.endswith("/__init__.py") else MODULE)} | self._inits(module)

    def _inits(self, module):
        paths = (self._modules.get(package) for package in _above(module))
        return {(path, TEXT) for path in paths if path}

    def _named(self, module, names, *, surely=True):
        """Return what `module.name.name` reaches; if nothing has the name, all of the module where it is surely one."""
        path, nodes = self._modules.get(module), self._inits(module)
        inner = f"{module}.{names[0]}" if names else ""
        if path is None:
            inside = inner in self._modules or inner in self._spaces
            return self._named(inner, names[1:], surely=surely) if inside else nodes
        if not path.endswith("/__init__.py"):
            # A name that is no function or class was made when the module was imported.
            return nodes | {(path, MODULE if names and names[0] not in self._mentions(path) else (*names, WHOLE)[0])}
        nodes.add((path, TEXT))
        if names[:1] == ("__file__",):
            nodes.add((path.removesuffix("/__init__.py"), FOLDER))
        elif names and names[0] in self._exports(path):
            home, name = self._exports(path)[names[0]]
            nodes |= self._named(home, (name, *names[1:]) if name else names[1:])
        elif inner in self._modules or inner in self._spaces:
            nodes |= self._named(inner, names[1:], surely=surely)
        elif surely or (names and names[0] in self._mentions(path)):
            nodes.add((path, WHOLE))
        return nodes

    def _said(self, path, text):
        """Return what a string reaches that is a script, or has names of modules in it."""
        nodes = set()
        if mentions.is_code(text):
            for found in mentions.of_scripts([text]).values():
                nodes |= self._reached(path, found, embedded=True)
        for name in _DOTTED.findall(text):
            if "*" in name:
                # In the package it is a pattern of settings.
                found = () if path.startswith("src/") else self._modules
                nodes |= {(self._modules[each], WHOLE) for each in found if fnmatchcase(each, name)}
                continue
            words = re.split("[.:]", name)
            length = next((n for n in range(len(words), 0, -1) if ".".join(words[:n]) in self._modules), 0)
            if not length:
                continue
            module, rest = ".".join(words[:length]), tuple(words[length:])
            if rest:
                nodes |= self._named(module, rest, surely=False)
            elif path.startswith("src/") and self._modules[module].endswith("/__init__.py"):
                # The name of loggers.
                nodes |= self._named(module, ("",), surely=False)
            else:
                nodes |= self._named(module, ())
                nodes |= {(self._modules[main], WHOLE) for main in [f"{module}.__main__"] if main in self._modules}
        return nodes

    def _files(self, path, text, *, joined):
        """Return the files and folders that a string names; a module names only those that are beside it."""
        text = text.removeprefix("./").strip("/")
        if not text or len(text) > 150 or re.search(r"[^\w./*-]", text):
            return set()
        folder = path.rpartition("/")[0]
        nearby = f"{folder}/{text}"
        if "*" in text:
            # Of "*" and "*.py" the folder says more, which is named too.
            if not re.search(r"[\w*]\.\w|\w/", text) or re.fullmatch(r"[*/]*\.py", text):
                return set()
            # A pattern of an extension alone is meant for the folders that the file names, if it names some.
            if re.fullmatch(r"\*\.\w+", text) and self._names_folders(path):
                return set()
            pattern = (f"/{nearby}" if path.startswith("src/") else f"*/{text}").replace("**/", "*")
            return {_read(each) for each in self._texts if fnmatchcase(f"/{each}", pattern)}
        nodes = set()
        if joined or "/" in text:
            # A conftest.py has lists of tests that it orders.
            ordered = "tests/" if path.endswith("conftest.py") else "no folder"
            nodes |= {(each, FOLDER) for each in self._folders & {text, nearby} if not each.startswith(ordered)}
        name = text.rpartition("/")[2]
        if path.startswith("src/"):
            found = [each for each in self._paths[name] if each == nearby]
        else:
            found = [each for each in self._paths[name] if each in (text, nearby)]
            found = found or [each for each in self._paths[name] if each.endswith(f"/{text}")]
        if name not in ("__init__.py", "conftest.py"):
            nodes |= {(each, WHOLE) for each in found if not is_test(each)}
        return nodes

    @cache  # noqa: B019
    def _names_folders(self, path):
        texts = {text.strip("/") for found in self._mentions(path).values() for text in found.paths}
        beside = path.rpartition("/")[0]
        return any(text in self._folders or f"{beside}/{text}" in self._folders for text in texts)


def is_test(path):
    """Return whether pytest takes this file for one of tests."""
    return path.startswith("tests/") and re.fullmatch(r"test_.*\.py", PurePosixPath(path).name) is not None


def _read(path):
    """Return the node of a file that is reached by a pattern or its folder: modules are read, pages are run."""
    return path, TEXT if path.endswith(".py") else WHOLE


def _above(module):
    words = module.split(".")
    return [".".join(words[:length]) for length in range(1, len(words))]
