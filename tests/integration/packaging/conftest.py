"""A wheel and an sdist of the sources as they are now, and the wheel in a virtual environment of its own."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[3]


def tracked_files():
    """What git knows of, and what it would if it were added; without what is deleted."""
    listed = ("git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\0")
    return [name for name in names if name and (ROOT / name).is_file()]


def build(source, into, *what):
    """Build without a look at the package index; return the files by what they are."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(into), *what, str(source)]
    done = subprocess.run(
        command,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return SimpleNamespace(wheel=next(into.glob("*.whl"), None), sdist=next(into.glob("*.tar.gz"), None))


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    """A copy of the sources, as an archive of them has it: git does not know it."""
    copy = tmp_path_factory.mktemp("source")
    for name in tracked_files():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="session")
def built(source, tmp_path_factory):
    """The sdist, and the wheel that is built from what is in the sdist, as ``pip install`` of it would."""
    return build(source, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def installed(built, tmp_path_factory):
    """A virtual environment that has the wheel; what it depends on is borrowed from the one that runs the tests."""
    home = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    install = ["-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(built.wheel)]
    subprocess.run([sys.executable, *install], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
    # A path alone: what an editable install has put there is not read, and the wheel is found first.
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return SimpleNamespace(home=home, bin=home / "bin", python=python, packages=packages)


@pytest.fixture
def run(installed, tmp_path):
    """`run("sparkrelay", "--help")` runs a command of the environment, outside of the checkout; returns what it did."""

    def run_it(command, *arguments, cwd=tmp_path, **environment):
        plain = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
        plain["PATH"] = f"{installed.bin}{os.pathsep}{plain['PATH']}"
        return subprocess.run(
            [str(installed.bin / command), *arguments],
            cwd=cwd,
            env={**plain, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    return run_it
