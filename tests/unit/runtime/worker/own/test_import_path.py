"""A worker's modules come from folders where Spark names archives of the same release."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import pytest

from sparkrelay.runtime.worker.own.import_path import prefer_folders


@pytest.fixture
def archive(tmp_path):
    """`archive(name, package, release)` makes one and returns its path."""

    def make(name, package, release):
        with zipfile.ZipFile(tmp_path / name, "w") as made:
            made.writestr(f"{package}/__init__.py", "")
            made.writestr(f"{package}/version.py", release)
        return str(tmp_path / name)

    return make


@pytest.fixture
def folder(tmp_path):
    """`folder(package, release)` installs a package and returns the folder that it is in."""

    def make(package, release):
        (tmp_path / "installed" / package).mkdir(parents=True)
        (tmp_path / "installed" / package / "version.py").write_text(release)
        return str(tmp_path / "installed")

    return make


@pytest.mark.parametrize(("name", "package"), [("pyspark.zip", "pyspark"), ("py4j-0.10.9.9-src.zip", "py4j")])
@pytest.mark.parametrize("release", ["4.3.0", "4.2.1"])
def test_archives_go_whose_release_is_installed(archive, folder, name, package, release):
    zipped, installed = archive(name, package, release), folder(package, "4.3.0")
    path = ["", zipped, installed]
    prefer_folders(path)
    assert path == (["", installed] if release == "4.3.0" else ["", zipped, installed])


def test_everything_else_stays(archive, folder, tmp_path):
    users, installed = archive("pipelines.zip", "pyspark", "4.3.0"), folder("pyspark", "4.3.0")
    (tmp_path / "pyspark.zip").write_text("no archive")
    jar, own = "/jars/spark-core_2.13-4.3.0.jar", "/jars/own.jar"
    path = [users, str(tmp_path / "pyspark.zip"), "/not/there/pyspark.zip", jar, own, installed]
    prefer_folders(path)
    assert path == [users, str(tmp_path / "pyspark.zip"), "/not/there/pyspark.zip", own, installed]


def test_no_index_of_an_archive_is_kept(archive, folder):
    zipped, installed = archive("pyspark.zip", "pyspark", "4.3.0"), folder("pyspark", "4.3.0")
    code = f"""if True:
        import sys
        sys.path[:0] = [{zipped!r}, {installed!r}]
        from sparkrelay.runtime.worker.own.import_path import prefer_folders
        known = {zipped!r} in sys.path_importer_cache
        prefer_folders()
        print(known, {zipped!r} in sys.path_importer_cache, {zipped!r} in sys.path)
    """
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["True", "False", "False"]


def test_a_folder_of_an_archive_that_was_taken_for_a_package_is_forgotten(tmp_path):
    jar = tmp_path / "spark-core_2.13-4.3.0.jar"
    with zipfile.ZipFile(jar, "w") as made:
        made.writestr("org/", "")
    code = f"""if True:
        import importlib, sys
        sys.path.insert(0, {str(jar)!r})
        import org
        from sparkrelay.runtime.worker.own.import_path import prefer_folders
        prefer_folders()
        importlib.invalidate_caches()
        print([place for place in sys.path_importer_cache if "spark-core" in place], "org" in sys.modules)
    """
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["[]", "False"]
