"""Which tests a change can reach: small trees for each way, and what is true of this repository."""

import subprocess

import grimp
import pytest
from tests.reach import PACKAGES, TEXT, WHOLE, Graph, is_test
from tests.selection import ROOT, Change, change_since, main, select

PACKAGE = {
    "src/sparkrelay/__init__.py": """
import importlib
from typing import TYPE_CHECKING
from sparkrelay.errors import Error
if TYPE_CHECKING:
    from sparkrelay.lazy import Lazy
__all__ = ["Error", "Lazy"]
_HOMES = {"Lazy": "sparkrelay.lazy"}
def __getattr__(name):
    return getattr(importlib.import_module(_HOMES[name]), name)
""",
    "src/sparkrelay/errors.py": "class Error: ...",
    "src/sparkrelay/lazy.py": "class Lazy: ...",
    "src/sparkrelay/parts/__init__.py": """
from sparkrelay.parts.high import High
from sparkrelay.parts.low import Low
__all__ = ["High", "Low"]
""",
    "src/sparkrelay/parts/high.py": "from sparkrelay.parts.low import Low\nclass High(Low): ...",
    "src/sparkrelay/parts/low.py": "class Low: ...",
    "src/sparkrelay/registered/__init__.py": """
import sparkrelay.registered.one
from sparkrelay.registered.table import TABLE
__all__ = ["TABLE"]
""",
    "src/sparkrelay/registered/one.py": "from sparkrelay.registered.table import TABLE\nTABLE.append(1)",
    "src/sparkrelay/registered/table.py": "TABLE = []",
    "src/sparkrelay/named/__init__.py": """
import importlib
_NAMES = ("one",)
def load():
    for name in _NAMES:
        importlib.import_module(f"{__name__}.{name}")
""",
    "src/sparkrelay/named/one.py": "",
    "src/sparkrelay/page/__init__.py": "",
    "src/sparkrelay/page/page.css": "",
    "src/sparkrelay/page/template/new.txt": "",
    "src/sparkrelay/page/template/new.py.template": "from sparkrelay import Lazy\nprint($NAME)",
    "src/sparkrelay/page/show.py": "from pathlib import Path\nTEMPLATES = Path(__file__).parent / 'template'",
    "tests/unit/test_other.py": "",
}
LOW = "src/sparkrelay/parts/low.py"
HIGH = "src/sparkrelay/parts/high.py"
LAZY = "src/sparkrelay/lazy.py"


def selection(files, *changed, deleted=()):
    texts = {path: lambda text=text: text for path, text in (PACKAGE | files).items()}
    return select(Change(texts, frozenset({*changed, *deleted}), frozenset(deleted)))


def selected(files, *changed, deleted=()):
    """Return the selected test files; there is always one more, which does nothing."""
    found = selection(files, *changed, deleted=deleted)
    return found.everything or sorted(found.tests)


def reaches(source, changed):
    """Return whether a test of this source is selected by this change, and no other is."""
    found = selected({"tests/unit/test_it.py": source}, changed)
    assert found in ([], ["tests/unit/test_it.py"])
    return found != []


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("from sparkrelay.parts.low import Low", LOW),
        ("from sparkrelay.parts.high import High", LOW),
        ("from sparkrelay.parts.high import High", "src/sparkrelay/parts/__init__.py"),
        ("from sparkrelay.parts.high import High", "src/sparkrelay/__init__.py"),
        ("from sparkrelay.parts import Low", LOW),
        ("from sparkrelay.parts import low", LOW),
        ("from sparkrelay.parts import *", LOW),
        ("import sparkrelay.parts as parts\nparts.Low()", LOW),
        ("import sparkrelay.parts\nsparkrelay.parts.Low()", LOW),
        ("import sparkrelay.parts\nsparkrelay.parts.low.Low()", LOW),
        ("import sparkrelay.parts\nvars(sparkrelay.parts)", LOW),
        ("import sparkrelay.parts\ndef test():\n    sparkrelay.parts.Unknown()", LOW),
        ("from sparkrelay import Lazy", LAZY),
        ("import sparkrelay\nsparkrelay.Lazy()", LAZY),
        ("def test():\n    from sparkrelay.parts.low import Low", LOW),
        ("class TestIt:\n    def test(self):\n        from sparkrelay.parts.low import Low", LOW),
        ("from sparkrelay.registered.table import TABLE", "src/sparkrelay/registered/one.py"),
        ("from sparkrelay.named import load", "src/sparkrelay/named/one.py"),
    ],
)
def test_an_import_is_followed_to_where_the_name_is_defined(source, changed):
    assert reaches(source, changed)


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("from sparkrelay.parts import Low", HIGH),
        ("import sparkrelay.parts as parts\nparts.Low()", HIGH),
        ("from sparkrelay.parts.low import Low", HIGH),
        ("from sparkrelay import Error", LAZY),
        ("import sparkrelay\nsparkrelay.Error()", LAZY),
        ("import typing\nif typing.TYPE_CHECKING:\n    from sparkrelay.parts.low import Low", LOW),
        ('"""See sparkrelay.parts.low."""', LOW),
        ("VALUE = 'client.tag.sparkrelay.parts.low'", LOW),
        ("VALUE = 'sparkrelay.log.directory'", LAZY),
    ],
)
def test_what_a_package_has_beside_a_name_is_not_reached(source, changed):
    assert not reaches(source, changed)


def test_a_relative_import():
    files = {"src/sparkrelay/parts/high.py": "from .low import Low\nclass High(Low): ..."}
    test = {"tests/unit/test_it.py": "from sparkrelay.parts.high import High"}
    assert selected(files | test, LOW) == ["tests/unit/test_it.py"]


@pytest.mark.parametrize(
    "source",
    [
        "def test(monkeypatch):\n    monkeypatch.setattr('sparkrelay.parts.low._VALUE', 1)",
        "MAIN = 'sparkrelay.parts.low:main'",
        "COMMAND = ['python', '-m', 'sparkrelay.parts.low']",
        "COMMAND = ['sparkrelay', 'demo']",
        "run('sparkrelay', 'demo')",
        "from importlib import import_module\nmodules = [import_module(f'sparkrelay.parts.{n}') for n in NAMES]",
        "from importlib import import_module\nall = import_module('sparkrelay.parts').__all__",
        "CODE = 'import sys; from sparkrelay.parts import Low'",
        "CODE = '''\n    from sparkrelay.parts import Low\n    Low()\n'''",
        "CODE = f'import sparkrelay.parts, sys\\nprint({1!r}) =='",
        "import sparkrelay.parts\nFOLDER = Path(sparkrelay.parts.__file__).parent",
        "SOURCES = (ROOT / 'src').rglob('*.py')",
        "SOURCES = ROOT.glob('src/**/*.py')",
    ],
)
def test_a_string_names_a_module(source):
    assert reaches(source, LOW)


def test_a_pattern_of_settings_in_the_package_names_no_modules():
    files = {"src/sparkrelay/lazy.py": "KEYS = 'sparkrelay.*'", "tests/unit/test_it.py": "import sparkrelay.lazy"}
    assert selected(files, LOW) == []


HELPER = """
def plain(): ...
def heavy():
    from sparkrelay.parts.low import Low
def caller():
    return heavy()
if __name__ == "__main__":
    caller()
"""


@pytest.mark.parametrize(
    ("source", "reached"),
    [
        ("from tests.helper import plain", False),
        ("from tests import helper\nhelper.plain()", False),
        ("from tests.helper import heavy", True),
        ("from tests.helper import caller", True),
        ("from tests import helper\nhelper.caller()", True),
        ("from tests import helper\nuse(helper)", True),
        ("COMMAND = ['python', '-m', 'tests.helper']", True),
        ("from pathlib import Path\nSCRIPT = Path(__file__).parents[1] / 'helper.py'", True),
    ],
)
def test_an_import_in_a_function_is_reached_by_who_names_the_function(source, reached):
    files = {"tests/helper.py": HELPER, "tests/unit/test_it.py": source}
    assert selected(files, LOW) == (["tests/unit/test_it.py"] if reached else [])
    assert selected(files, "tests/helper.py") == ["tests/unit/test_it.py"]


@pytest.mark.parametrize(
    "helper",
    [
        "@command\ndef run():\n    from sparkrelay.parts.low import Low",
        "class Holder(Base):\n    def run(self):\n        from sparkrelay.parts.low import Low",
        "def run():\n    from sparkrelay.parts.low import Low\nTABLE = {'run': run}",
        "def run():\n    from sparkrelay.parts.low import Low\ndef other(*, given=run()): ...",
    ],
)
def test_what_something_else_may_call_is_reached_with_its_module(helper):
    files = {"tests/helper.py": helper, "tests/unit/test_it.py": "from tests.helper import other"}
    assert selected(files, LOW) == ["tests/unit/test_it.py"]


CHILDREN = {
    "tests/chaos/child.py": "from sparkrelay.parts.low import Low",
    "tests/chaos/children.py": "def start(script='child.py'):\n    popen([python, Path(__file__).with_name(script)])",
    "bench/__init__.py": "",
    "bench/child.py": "from sparkrelay.parts.high import High",
}


@pytest.mark.parametrize(
    "source",
    [
        "popen([python, str(Path(__file__).with_name('child.py'))])",
        "popen([python, '-m', 'tests.chaos.child'])",
        "from tests.chaos.children import start",
        "popen([python, ROOT / 'tests' / 'chaos' / 'child.py'])",
        "popen([python, 'tests/chaos/child.py'])",
        "import child",
    ],
)
def test_a_script_that_is_started_is_reached_with_what_it_imports(source):
    files = CHILDREN | {"tests/chaos/test_it.py": source}
    assert selected(files, "tests/chaos/child.py") == ["tests/chaos/test_it.py"]
    assert selected(files, LOW) == ["tests/chaos/test_it.py"]
    assert selected(files, HIGH) == []


FIXTURES = {
    "tests/conftest.py": """
import pytest
LONGEST = ("unit/test_other.py", "tests/unit/deep/")
@pytest.fixture
def low():
    from sparkrelay.parts.low import Low
@pytest.fixture(name="lazy")
def _lazy():
    from sparkrelay.lazy import Lazy
""",
    "tests/unit/deep/conftest.py": """
import pytest
from sparkrelay.errors import Error
@pytest.fixture
def on_low(low): ...
@pytest.fixture(autouse=True)
def _each():
    from sparkrelay.named import load
def pytest_configure():
    from sparkrelay.registered.table import TABLE
""",
}


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("def test(low): ...", LOW),
        ("def test(on_low): ...", LOW),
        ("def test(lazy): ...", LAZY),
        ("class TestIt:\n    def test(self, low): ...", LOW),
        ("@pytest.mark.usefixtures('low')\ndef test(): ...", LOW),
        ("def test(request):\n    request.getfixturevalue('low')", LOW),
        ("@pytest.fixture\ndef own(low): ...", LOW),
        ("", "src/sparkrelay/errors.py"),
        ("", "src/sparkrelay/named/__init__.py"),
        ("", "src/sparkrelay/registered/table.py"),
        ("", "tests/unit/deep/conftest.py"),
    ],
)
def test_a_test_reaches_the_fixtures_that_it_asks_for(source, changed):
    assert "tests/unit/deep/test_it.py" in selected(FIXTURES | {"tests/unit/deep/test_it.py": source}, changed)


def test_fixtures_that_are_not_asked_for_are_not_reached():
    files = FIXTURES | {"tests/unit/deep/test_it.py": "def test(lazy): ..."}
    assert selected(files, LOW) == []
    # The outer one lists tests that come first: that is no use of them.
    assert selected(files, "tests/unit/test_other.py") == ["tests/unit/test_other.py"]
    assert selected(files, "tests/conftest.py") == "every test reaches the change"


DATA = {
    "docs/how-to/run.md": "Text.\n\n```python\nfrom sparkrelay.parts import Low\n```\n",
    "docs/notebook.ipynb": '{"cells": [{"cell_type": "code", "source": ["from sparkrelay import Lazy"]}]}',
    "tests/oracle/json/cases.jsonl": "",
    "tests/oracle/json/Oracle.java": "",
    "bench/java/Queries.java": "",
}


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("PAGE = ROOT / 'docs' / 'how-to' / 'run.md'", "docs/how-to/run.md"),
        ("PAGE = ROOT / 'docs' / folder / 'run.md'", "docs/how-to/run.md"),
        ("PAGE = (ROOT / 'docs' / 'how-to' / 'run.md').read_text()", LOW),
        ("run('docs/how-to/run.md')", "docs/how-to/run.md"),
        ("PAGES = sorted((ROOT / 'docs').rglob('*.md'))", "docs/how-to/run.md"),
        ("PAGES = ROOT.glob('docs/**/*.md')", "docs/how-to/run.md"),
        ("DOCS = ROOT / 'docs'", "docs/how-to/run.md"),
        ("FILE = ROOT / 'docs' / 'notebook.ipynb'", LAZY),
        ("CASES = (Path(__file__).parents[1] / 'oracle' / 'json' / 'cases.jsonl')", "tests/oracle/json/cases.jsonl"),
        ("CASES = HERE.with_name('cases.jsonl')", "tests/oracle/json/cases.jsonl"),
        ("CASES = [FOLDER / f'{name}.jsonl' for name in NAMES]", "tests/oracle/json/cases.jsonl"),
        ("SOURCE = FOLDER / 'Oracle.java'", "tests/oracle/json/Oracle.java"),
        ("SOURCES = (ROOT / 'bench' / 'java').glob('*.java')", "bench/java/Queries.java"),
        ("from sparkrelay import page\npage.files()", "src/sparkrelay/page/page.css"),
        ("import sparkrelay.page.show", "src/sparkrelay/page/template/new.txt"),
        ("import sparkrelay.page.show", LAZY),
    ],
)
def test_data_and_pages_are_reached_by_who_names_them(source, changed):
    files = DATA | {"tests/unit/test_it.py": source}
    assert selected(files, changed) == ["tests/unit/test_it.py"]


def test_a_pattern_looks_into_the_folders_that_are_named():
    files = DATA | {"docs/index.md": "", "tests/unit/test_pages.py": "PAGES = ROOT.glob('*.md')"}
    files["tests/unit/test_it.py"] = "PAGES = (ROOT / 'docs' / 'how-to').glob('*.md')"
    assert selected(files, "docs/how-to/run.md") == ["tests/unit/test_it.py", "tests/unit/test_pages.py"]
    assert selected(files, "docs/index.md") == ["tests/unit/test_pages.py"]


@pytest.mark.parametrize(
    "path", ["pyproject.toml", "Makefile", ".github/workflows/test.yml", ".ci/run.py", "docs/new.svg", "tests/new.txt"]
)
def test_what_no_rule_maps_runs_everything(path):
    assert path in selected({path: "", "tests/unit/test_it.py": "import sparkrelay"}, LOW, path)


def test_a_module_that_no_test_reaches_runs_nothing():
    assert selected({}, LOW) == []


def test_a_changed_test_is_selected_and_a_deleted_one_is_not():
    files = {"tests/unit/test_it.py": "", "tests/unit/test_gone.py": ""}
    assert selected(files, "tests/unit/test_it.py", deleted=["tests/unit/test_gone.py"]) == ["tests/unit/test_it.py"]


@pytest.mark.parametrize("source", ["from sparkrelay.parts import Low", "import sparkrelay.parts.high"])
def test_a_deleted_module_runs_what_imported_it(source):
    assert selected({"tests/unit/test_it.py": source}, deleted=[LOW]) == ["tests/unit/test_it.py"]


def test_the_way_to_the_change_is_known():
    files = {"tests/unit/test_it.py": "from sparkrelay.parts import High"}
    assert selection(files, LOW).tests == {"tests/unit/test_it.py": (HIGH, LOW)}
    assert selection(files, "tests/unit/test_it.py").tests == {"tests/unit/test_it.py": ("tests/unit/test_it.py",)}


class Clone:
    """A git repository of a few files."""

    def __init__(self, root):
        self.root = root
        self.git("init", "--quiet", "--initial-branch=main")
        self.write("pyproject.toml", "[tool.pytest.ini_options]\ntestpaths = ['tests/unit']\n")
        for path, text in PACKAGE.items():
            self.write(path, text)
        self.write("tests/unit/test_low.py", "from sparkrelay.parts import Low")
        self.write("tests/unit/test_lazy.py", "from sparkrelay import Lazy")
        self.write("tests/browser/test_page.py", "from sparkrelay import Lazy")
        self.commit()

    def git(self, *words):
        names = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", self.root, *names, *words], check=True, capture_output=True)

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "Change it")


@pytest.fixture
def clone(tmp_path):
    return Clone(tmp_path)


def test_the_change_is_what_differs_in_the_working_tree(clone):
    clone.write(LAZY, "class Lazy: 1")
    clone.commit()
    assert change_since(clone.root, "HEAD").changed == set()
    clone.write("src/sparkrelay/errors.py", "class Error: 2")
    clone.git("add", "--all")
    clone.write(HIGH, "class High: 3")
    clone.write("tests/unit/test_ü new.py", "")
    (clone.root / LOW).unlink()
    change = change_since(clone.root, "HEAD~1")
    assert change.changed == {LAZY, "src/sparkrelay/errors.py", HIGH, "tests/unit/test_ü new.py", LOW}
    assert change.deleted == {LOW}
    assert change.texts[LOW]() == PACKAGE[LOW]
    assert change.texts[HIGH]() == "class High: 3"
    assert "tests/unit/test_low.py" in select(change).tests


def test_what_the_base_has_changed_since_does_not_count(clone):
    clone.git("switch", "--quiet", "--create", "mine")
    clone.write(LAZY, "class Lazy: 1")
    clone.commit()
    clone.git("switch", "--quiet", "main")
    clone.write(LOW, "class Low: 1")
    clone.commit()
    clone.git("switch", "--quiet", "mine")
    assert change_since(clone.root, "main").changed == {LAZY}


def test_the_base_is_the_upstream_or_origins_branch_or_the_commit_before(clone):
    for text in ("class Lazy: 1", "class Lazy: 2"):
        clone.write(LAZY, text)
        clone.write(LOW, text.replace("1", "2"))
        clone.commit()
    assert change_since(clone.root, None).changed == {LAZY}
    clone.git("update-ref", "refs/remotes/origin/trunk", "HEAD~2")
    clone.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
    for words in (("switch", "--quiet", "--create", "mine"), ("switch", "--quiet", "--detach"), ("switch", "main")):
        clone.git(*words)
        assert change_since(clone.root, None).changed == {LAZY, LOW}, "not the last commit alone"
        assert change_since(clone.root, None).base == "origin/trunk"
    clone.git("branch", "shared", "HEAD~1")
    clone.git("branch", "--set-upstream-to=shared")
    assert change_since(clone.root, None).changed == {LAZY}
    assert change_since(clone.root, None).base == "shared"


def test_the_command_prints_the_files_that_make_test_runs(clone, capsys):
    clone.write(LAZY, "class Lazy: 1")
    clone.commit()
    main([], clone.root)
    said = capsys.readouterr()
    assert said.out == "tests/unit/test_lazy.py\n"
    assert "tests/browser/test_page.py" in said.err
    main(["--base", "HEAD~1", "--list"], clone.root)
    assert capsys.readouterr().out == f"tests/unit/test_lazy.py: {LAZY}\n"


def test_the_command_says_why_everything_must_run(clone, capsys):
    clone.write("Makefile", "")
    main(["--base", "HEAD"], clone.root)
    said = capsys.readouterr()
    assert said.out == "everything\n"
    assert "Makefile" in said.err


def test_the_command_prints_nothing_where_nothing_differs(clone, capsys):
    main(["--base", "HEAD"], clone.root)
    assert capsys.readouterr() == ("", "no file differs from HEAD\n")


def test_the_command_says_where_no_test_reaches_the_change(clone, capsys):
    clone.write("bench/alone.py", "")
    main(["--base", "HEAD"], clone.root)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "1 file differs from HEAD\nno test of `make test` can reach the change\n"


def test_an_unknown_base_is_refused(clone, capsys):
    with pytest.raises(SystemExit):
        main(["--base", "nowhere"], clone.root)
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "content", "line"),
    [
        (LAZY, b"class Lazy:", 1),
        ("src/sparkrelay/parts/__init__.py", b"\n\ndef x(:", 3),
        ("tests/conftest.py", b"\ndef x(:", 2),
        (LAZY, b"NAME = '\xff'", 1),
        (LAZY, b"\0", 1),
        ("docs/notebook.ipynb", b'{"cells":\n', 2),
    ],
)
def test_a_file_that_cannot_be_read_is_named(path, content, line, clone, capsys):
    clone.write(path, "")
    (clone.root / path).write_bytes(content)
    with pytest.raises(SystemExit):
        main(["--base", "HEAD"], clone.root)
    assert f"{path}:{line}: " in capsys.readouterr().err


# --- This repository.


@pytest.fixture(scope="module")
def texts():
    folders = ROOT / "src", ROOT / "tests", ROOT / "bench"
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path.relative_to(ROOT).as_posix(): path.read_text for path in files}


@pytest.fixture(scope="module")
def graph(texts):
    return Graph(texts)


def path_of(module, texts):
    for folder, prefix in PACKAGES.items():
        if module.startswith(prefix) and (prefix or module.startswith("sparkrelay")):
            path = folder + module.removeprefix(prefix).replace(".", "/")
            found = [each for each in (f"{path}.py", f"{path}/__init__.py") if each in texts]
            if found:
                return found[0]
    return None


@pytest.mark.long
def test_each_import_that_import_linter_sees_is_a_link(texts, graph, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    seen = grimp.build_graph("sparkrelay", "tests", "bench", cache_dir=None, exclude_type_checking_imports=True)
    links = {}
    for (path, _part), nodes in graph.links.items():
        links.setdefault(path, set()).update(each for each, _ in nodes)
    paths = {module: path for module in seen.modules if (path := path_of(module, texts))}
    missing = [
        (path, paths[other])
        for module, path in paths.items()
        for other in seen.find_modules_directly_imported_by(module)
        if other in paths and paths[other] not in links[path]
    ]
    assert missing == []
    assert len(paths) > 1000


def test_each_module_is_reached_by_a_test_and_a_leaf_by_few(texts, graph):
    tests = {path for path in texts if is_test(path)}
    reached, waiting = set(), [(test, WHOLE) for test in tests]
    while waiting:
        if (node := waiting.pop()) not in reached:
            reached.add(node)
            waiting.extend(graph.links.get(node, ()))
    modules = {path for path in texts if path.startswith("src/") and path.endswith(".py")}
    assert {path for path in modules if (path, TEXT) not in reached} == set()
    steps = graph.reaching(["src/sparkrelay/cli/top.py"])
    assert len([test for test in tests if (test, WHOLE) in steps]) < len(tests) / 10
