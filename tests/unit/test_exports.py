import subprocess
import sys

import pytest

import sparkrelay


def test_every_public_name_exists():
    for name in sparkrelay.__all__:
        assert getattr(sparkrelay, name) is not None


def test_importing_the_package_imports_neither_pyspark_nor_arrow():
    code = "import sys, sparkrelay; print([m for m in ('pyspark', 'pyarrow', 'numba', 'kafka') if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = sparkrelay.Nonsense
