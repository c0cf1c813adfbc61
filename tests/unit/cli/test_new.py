"""`sparkrelay new`: which files there are, which names there may be, and that nothing is half-written."""

import os
import tomllib
from pathlib import Path

import pytest
import yaml

from sparkrelay.cli import app as command_line, new as command
from sparkrelay.devkafka import KAFKA_VERSION

FILES = {
    *(".dockerignore", ".gitignore", "Dockerfile", "README.md", "compose.yaml", "pipeline.py", "pytest.ini"),
    *("requirements.txt", "test_pipeline.py", "try_it.py", "wheels", "wheels/README.md"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_project_is_written_whole(folder, capsys):
    assert command_line.run(["new", "order-totals"]) == 0
    assert capsys.readouterr().out == "order-totals: created. Continue with order-totals/README.md\n"
    assert files(folder / "order-totals") == FILES
    assert [path.name for path in folder.iterdir()] == ["order-totals"]
    for path in (folder / "order-totals").rglob("*.*"):
        assert path.is_dir() or "{{" not in path.read_text(), path
    assert '"application.id": "order-totals"' in Path("order-totals/pipeline.py").read_text()
    assert f"apache/kafka:{KAFKA_VERSION}" in Path("order-totals/compose.yaml").read_text()


@pytest.mark.parametrize(("version", "pin"), [("1.2.3", "sparkrelay==1.2.3"), ("0.0.1.dev1005", "sparkrelay")])
def test_a_release_is_pinned_and_a_build_of_a_checkout_is_not(folder, monkeypatch, version, pin):
    monkeypatch.setattr(command, "version", lambda _: version)
    command_line.run(["new", "totals"])
    assert Path("totals/requirements.txt").read_text().splitlines()[-1] == pin


def test_the_folder_has_the_rights_that_folders_have_here(folder):
    Path("beside").mkdir()
    command_line.run(["new", "totals"])
    assert Path("totals").stat().st_mode == Path("beside").stat().st_mode


def test_the_image_runs_as_a_number_that_is_not_root(folder):
    command_line.run(["new", "totals"])
    (user,) = (line for line in Path("totals/Dockerfile").read_text().splitlines() if line.startswith("USER "))
    assert all(int(part) >= 1000 for part in user.removeprefix("USER ").split(":"))


def test_an_empty_folder_is_filled(folder):
    Path("totals").mkdir()
    assert command_line.run(["new", "totals"]) == 0
    assert files(folder / "totals") == FILES


def test_a_folder_that_has_something_is_refused_and_left_alone(folder, capsys):
    Path("totals").mkdir()
    Path("totals/mine.txt").write_text("mine")
    assert command_line.run(["new", "totals"]) == 1
    assert "totals exists already and is not an empty folder" in capsys.readouterr().err
    assert files(folder) == {"totals", "totals/mine.txt"}


@pytest.mark.parametrize("make", [lambda path: path.write_text("mine"), lambda path: path.symlink_to("nowhere")])
def test_what_is_no_folder_is_refused(folder, capsys, make):
    make(Path("totals"))
    assert command_line.run(["new", "totals"]) == 1
    assert "totals exists already" in capsys.readouterr().err
    assert files(folder) == {"totals"}


@pytest.mark.parametrize(
    "name", ["", "Totals", "1totals", "my totals", "a/b", "..", "-x", "totals-", "a--b", "a.b", "ä", "a" * 61, "a\n"]
)
def test_a_name_that_is_none_is_refused(folder, capsys, name):
    assert command_line.run(["new", "--", name]) == 1
    assert "cannot name a project" in capsys.readouterr().err
    assert files(folder) == set()


def test_a_failure_halfway_leaves_nothing(folder, monkeypatch, capsys):
    write = Path.write_text

    def fail(path, text):
        if path.name == "README.md":
            raise OSError(28, os.strerror(28), str(path))
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", fail)
    assert command_line.run(["new", "totals"]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert files(folder) == set()


def test_each_template_has_its_suffix():
    """What is without it would be left out, and a .gitignore among them would be obeyed when the wheel is built."""
    templates = [path for path in command._TEMPLATES.rglob("*") if path.is_file()]
    assert len(templates) == len(FILES) - 1
    assert {path.suffix for path in templates} == {".template"}


def test_what_the_project_wants_of_python_is_what_we_want():
    wanted = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]["requires-python"]
    assert f"Python {wanted.removeprefix('>=')} or newer" in (command._TEMPLATES / "README.md.template").read_text()


def test_the_compose_file_has_kafka_its_topics_and_two_instances(folder):
    command_line.run(["new", "totals"])
    compose = yaml.safe_load(Path("totals/compose.yaml").read_text())
    services = compose["services"]
    assert compose["name"] == "totals"
    assert set(services) == {"kafka", "topics", "pipeline"}
    assert services["pipeline"]["deploy"]["replicas"] == 2
    assert services["pipeline"]["image"] == services["topics"]["image"] == "totals"
    # What is not on this machine alone is for others to read and write.
    assert all(port.startswith("127.0.0.1:") for port in services["kafka"]["ports"])
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
    kafka = services["kafka"]["environment"]
    listeners = {name.partition("://")[0] for name in kafka["KAFKA_LISTENERS"].split(",")}
    assert listeners == {pair.partition(":")[0] for pair in kafka["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(",")}
    advertised = dict(entry.split("://") for entry in kafka["KAFKA_ADVERTISED_LISTENERS"].split(","))
    assert advertised["INSIDE"] == services["pipeline"]["environment"]["KAFKA_BOOTSTRAP_SERVERS"]
