"""Errors in Python workers begin with their message; other programs keep their stacks."""

import os
import subprocess
import sys

import pytest

from sparkrelay.datasources.plain_errors import plain_errors
from sparkrelay.errors import ConfigException


@plain_errors
def fail(error):
    raise error


def test_a_program_that_is_not_a_worker_is_left_as_it_is(monkeypatch):
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
    with pytest.raises(ConfigException, match="x=1"):
        fail(ConfigException("x=1"))
    assert "SPARK_HIDE_TRACEBACK" not in os.environ


@pytest.mark.parametrize(
    ("error", "settings", "hidden"),
    [
        ("ConfigException('x')", {}, True),
        ("ValueError('x')", {}, False),
        ("ConfigException('x')", {"SPARKRELAY_TRACEBACK": "1"}, False),
    ],
)
def test_in_a_worker_the_stack_of_our_own_errors_is_hidden(error, settings, hidden):
    script = f"""
import contextlib, os, sys, types
os.environ.update({settings!r})
sys.modules["__main__"].__spec__ = types.SimpleNamespace(name="pyspark.daemon")
from sparkrelay.datasources.plain_errors import plain_errors
from sparkrelay.errors import ConfigException

@plain_errors
def fail():
    raise {error}

with contextlib.suppress(Exception):
    fail()
print(os.environ.get("SPARK_HIDE_TRACEBACK"))
"""
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == ("1" if hidden else "None")
