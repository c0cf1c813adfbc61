"""The wheel, installed: what its command and its package do outside of the checkout."""

import pytest

pytestmark = pytest.mark.integration


def test_the_command_and_the_package_are_the_wheels(run, installed):
    assert run("sparkrelay", "--version").stdout.strip() == "0.0.0"
    asked = run("python", "-c", "import sparkrelay; print(sparkrelay.__file__, sparkrelay.__version__)")
    assert asked.stdout.split() == [str(installed.packages / "sparkrelay" / "__init__.py"), "0.0.0"], asked.stderr


def test_each_command_is_there(run):
    commands = ("broker", "demo", "new", "prepare", "plan", "reset", "state", "simulate")
    helped = run("sparkrelay", "--help")
    assert helped.returncode == 0, helped.stderr
    assert all(command in helped.stdout for command in commands)
    # In one process: most of the time would be that of importing Spark.
    code = f"from sparkrelay.cli.app import run; print([run([name, '--help']) for name in {commands}])"
    assert run("python", "-c", code).stdout.splitlines()[-1] == str([0] * len(commands))


def test_importing_is_cheap(run):
    code = "import sys, sparkrelay; print(*(m for m in ('pyspark', 'pyarrow', 'numba', 'pandas') if m in sys.modules))"
    assert run("python", "-c", code).stdout.strip() == ""


def test_files_that_are_read_at_run_time_are_found(run):
    # What imports every compiled loop takes a minute here, and needs no file but the modules; the next test has some.
    code = (
        "import sparkrelay.client.joining, sparkrelay.client.messages\n"
        "from sparkrelay.runtime.spark.session import RECOMMENDED\n"
        "open(RECOMMENDED['spark.scheduler.allocation.file'][0]).close()"
    )
    done = run("python", "-W", "ignore", "-c", code)
    assert done.returncode == 0, done.stderr


def test_compiled_loops_lie_beside_the_package_or_where_the_environment_says(run, installed, tmp_path):
    # Those of one module: all of them take a minute.
    code = (
        "import sparkrelay.records.partition, sparkrelay.records._native as native\n"
        "[loop.made for loop in native.kernels()]"
    )
    compiled = run("python", "-W", "ignore", "-c", code)
    assert compiled.returncode == 0, compiled.stderr
    assert list((installed.packages / "sparkrelay" / "records" / "__pycache__").glob("*.nbi"))
    elsewhere = tmp_path / "numba"
    moved = run("python", "-W", "ignore", "-c", code, NUMBA_CACHE_DIR=str(elsewhere))
    assert moved.returncode == 0, moved.stderr
    assert list(elsewhere.rglob("*.nbi"))
