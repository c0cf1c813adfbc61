"""An assignor can be named by class, by import path or by file."""

import sys
import textwrap
from pathlib import Path

import pytest

from sparkrelay.assignment import (
    HighAvailabilityTaskAssignor,
    StickyTaskAssignor,
    load_assignor,
    require_known_settings,
)
from sparkrelay.errors import ConfigException

SOURCE = """
    from __future__ import annotations

    from dataclasses import dataclass

    from sparkrelay.assignment import StickyTaskAssignor

    class Mine(StickyTaskAssignor):
        @dataclass(frozen=True)
        class Inner:
            size: int = 1

        def configure(self, configs):
            self.seen = dict(configs)

    class NoAssignor:
        pass
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my_assignor.py"
    path.write_text(textwrap.dedent(SOURCE))
    return path


@pytest.mark.parametrize(
    "setting",
    ["sparkrelay.assignment:StickyTaskAssignor", "sparkrelay.assignment.StickyTaskAssignor", StickyTaskAssignor],
)
def test_by_import_path_or_class(setting):
    assert type(load_assignor(setting, {})) is StickyTaskAssignor


@pytest.mark.parametrize("setting", [None, ""])
def test_the_default(setting):
    assert type(load_assignor(setting, {})) is HighAvailabilityTaskAssignor


def test_by_absolute_file(file):
    assignor = load_assignor(f"{file}:Mine", {"application.id": "app"})
    assert type(assignor).__name__ == "Mine"
    assert assignor.seen == {"application.id": "app"}


@pytest.mark.parametrize("path", ["my_assignor.py", "./my_assignor.py"])
def test_by_file_in_the_current_folder(file, monkeypatch, path):
    monkeypatch.chdir(file.parent)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    assert type(load_assignor(f"{path}:Mine", {})).__name__ == "Mine"


@pytest.mark.parametrize("path", ["my_assignor.py", "./my_assignor.py"])
def test_by_file_in_a_folder_of_the_import_path(file, monkeypatch, tmp_path_factory, path):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    monkeypatch.syspath_prepend(file.parent)
    assert type(load_assignor(f"{path}:Mine", {})).__name__ == "Mine"


def test_a_file_with_a_famous_name_takes_nobodys_place(tmp_path):
    import random

    path = tmp_path / "random.py"
    path.write_text(textwrap.dedent(SOURCE))
    assert type(load_assignor(f"{path}:Mine", {})).__name__ == "Mine"
    assert sys.modules["random"] is random


def test_an_edited_file_is_seen(file):
    before = type(load_assignor(f"{file}:Mine", {}))
    file.write_text(file.read_text().replace("size: int = 1", "size: int = 123"))
    after = type(load_assignor(f"{file}:Mine", {}))
    assert (before.Inner().size, after.Inner().size) == (1, 123)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("my_assignor.py:NoAssignor", "must be a subclass"),
        ("my_assignor.py:Missing", "Missing"),
        ("my_assignor.py:", "not an import path"),
        ("my_assignor.py", r"write .*my_assignor\.py:Class"),
        ("no_such_file.py:Mine", r"no file .*no_such_file\.py"),
        ("nonsense", "not an import path"),
        ("no.such:Thing", "cannot be imported"),
        ("json:JSONDecoder", "must be a subclass"),
    ],
)
def test_what_cannot_be_loaded_is_named_with_the_reason(file, monkeypatch, name, says):
    monkeypatch.chdir(file.parent)
    with pytest.raises(ConfigException, match=says) as raised:
        load_assignor(name, {})
    assert repr(name) in str(raised.value)


def test_a_file_that_fails_leaves_no_module_behind(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("raise RuntimeError('on purpose')\n")
    with pytest.raises(ConfigException, match="on purpose"):
        load_assignor(f"{path}:Mine", {})
    assert not any(Path(name).name == "broken.py" for name in sys.modules)


def test_an_assignor_that_needs_arguments_is_refused():
    class Needy(StickyTaskAssignor):
        def __init__(self, wanted):
            self.wanted = wanted

    with pytest.raises(ConfigException, match="wanted"):
        load_assignor(Needy, {})


def test_a_module_that_is_not_found_is_reported_with_the_remedy():
    with pytest.raises(ConfigException, match=r"'not_here:Mine' cannot be imported.*PYTHONPATH, or name the file"):
        load_assignor("not_here:Mine", {})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("org.apache.kafka.streams.processor.assignment.assignors.StickyTaskAssignor", StickyTaskAssignor),
        (
            "org.apache.kafka.streams.processor.internals.assignment.HighAvailabilityTaskAssignor",
            HighAvailabilityTaskAssignor,
        ),
    ],
)
def test_by_javas_name(name, kind):
    assert type(load_assignor(name, {})) is kind


def test_another_class_of_java_is_refused_with_those_that_there_are():
    with pytest.raises(ConfigException, match=r"Nothing' is a Java class.*assignors\.StickyTaskAssignor"):
        load_assignor("org.apache.kafka.streams.Nothing", {})


def test_an_assignor_that_names_its_settings_has_no_others(file):
    assignor = load_assignor(None, {})
    require_known_settings(assignor, {"task.assignor.class": "", "application.id": "app"})
    with pytest.raises(ConfigException, match=r"has no setting task.assignor.clas='x'; did you mean 'task.ass"):
        require_known_settings(assignor, {"task.assignor.clas": "x"})
    # Mine derives from one that has none.
    mine = load_assignor(f"{file}:Mine", {"task.assignor.mine": 3})
    require_known_settings(mine, {"task.assignor.mine": 3})
    assert mine.seen["task.assignor.mine"] == 3
