"""The wheel and the sdist: what is in them, that they can be made again, and how they are called."""

import subprocess
import tarfile
import zipfile

import pytest
from tests.integration.packaging.conftest import ROOT, build, tracked_files

pytestmark = pytest.mark.integration

PACKAGE = "src/sparkrelay/"


def test_the_wheel_has_each_file_of_the_package_and_nothing_else(built):
    ours = {name.removeprefix("src/") for name in tracked_files() if name.startswith(PACKAGE)}
    with zipfile.ZipFile(built.wheel) as wheel:
        names = {name for name in wheel.namelist() if not name.split("/")[0].endswith(".dist-info")}
        assert names == ours
        for name in ours:
            assert wheel.read(name) == (ROOT / "src" / name).read_bytes(), name
    # Each is read at run time, and no import would miss it.
    assert {name.rsplit(".", 1)[-1] for name in ours} >= {"json", "xml", "typed", "template"}


def test_the_wheel_says_what_it_needs_and_has_the_licence(built):
    with zipfile.ZipFile(built.wheel) as wheel:
        (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        text = wheel.read(metadata).decode()
        assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel.namelist())
    for line in ("Requires-Python: >=3.11", "Provides-Extra: demo", "Provides-Extra: protobuf"):
        assert line in text.splitlines()


@pytest.mark.long
def test_an_sdist_has_all_that_git_has_and_is_the_same_whenever_it_is_made(source, built, tmp_path):
    again = build(source, tmp_path)
    assert again.sdist.read_bytes() == built.sdist.read_bytes()
    assert again.wheel.read_bytes() == built.wheel.read_bytes()
    with tarfile.open(built.sdist) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames()}
    assert names == {*tracked_files(), "PKG-INFO"}


@pytest.mark.long
def test_a_wheel_from_the_sources_is_the_one_from_the_sdist(source, built, tmp_path):
    assert build(source, tmp_path, "--wheel").wheel.read_bytes() == built.wheel.read_bytes()


def git(folder, *arguments):
    who = ("-c", "user.name=Nobody", "-c", "user.email=nobody@localhost", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def repository(source, tmp_path_factory):
    """Two commits of the sources, the first of them tagged."""
    folder = tmp_path_factory.mktemp("repository")
    subprocess.run(["cp", "-r", f"{source}/.", str(folder)], check=True)
    git(folder, "init", "--initial-branch", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "One")
    git(folder, "tag", "v7.8.9")
    git(folder, "commit", "--allow-empty", "-m", "Two")
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    ("clone", "version"),
    [
        (("--branch", "v7.8.9"), "7.8.9"),
        ((), "7.8.10.dev1"),
        (("--no-tags",), "0.0.1.dev2"),
        (("--no-tags", "--depth", "1"), "0.0.1.dev1"),
    ],
)
def test_the_version_is_the_nearest_tags(repository, tmp_path, clone, version):
    subprocess.run(
        ["git", "clone", "--quiet", *clone, repository.as_uri(), str(tmp_path / "clone")],
        check=True,
        capture_output=True,
    )
    made = build(tmp_path / "clone", tmp_path / "dist")
    assert made.wheel.name == f"sparkrelay-{version}-py3-none-any.whl"
    assert made.sdist.name == f"sparkrelay-{version}.tar.gz"


def test_sources_without_git_have_a_version_that_is_older_than_any(built):
    assert built.wheel.name == "sparkrelay-0.0.0-py3-none-any.whl"
