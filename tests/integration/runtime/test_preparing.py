"""``sparkrelay prepare``, and what a session makes of it, in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

SESSION = """
from sparkrelay import spark_session
spark_session("archived", **{"spark.master": "local[1]", "spark.ui.enabled": "false"}).stop()
"""
ARCHIVED = "source: shared objects file (top)"


@pytest.mark.long
def test_a_session_takes_sparks_classes_from_the_archive(tmp_path):
    # With the options of a test run's JVMs this one could not write an archive.
    environment = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
    environment["XDG_CACHE_HOME"] = str(tmp_path)
    command = Path(sys.executable).with_name("sparkrelay")
    run = subprocess.run([command, "prepare"], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    (archive,) = (tmp_path / "sparkrelay").iterdir()
    assert run.stdout.strip() == str(archive)

    loaded = tmp_path / "loaded"
    environment["SPARK_SUBMIT_OPTS"] = f"-Xlog:class+load:file={loaded}"
    run = subprocess.run([sys.executable, "-c", SESSION], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    sparks = [line for line in loaded.read_text().splitlines() if " org.apache.spark." in line]
    archived = [line for line in sparks if ARCHIVED in line]
    assert len(archived) > len(sparks) / 2, "most of what a start loads"
