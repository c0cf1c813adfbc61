from __future__ import annotations

import subprocess
import sys

import pytest

from sparkrelay.records.formats import Format, Integer, Json, Long, Raw, String


def test_formats_are_values():
    assert String("carrier") == String("carrier") != String()
    assert len({String(), String("a"), Raw(), Raw(), Json("a int"), Integer(), Long()}) == 6
    assert all(isinstance(made, Format) for made in (Raw(), String(), Json(), Integer(), Long()))
    assert repr(Json("a int")) == "Json(schema='a int', without_key=False)"


def test_the_column_is_named_by_its_place_unless_it_has_a_name():
    assert String().only_column("key") == "key"
    assert Raw("payload").only_column("value") == "payload"


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="String\\(5\\)"):
        String(5)
    with pytest.raises(ValueError, match="at least one field"):
        Json("  ")


def test_importing_formats_loads_nothing_heavy():
    code = "import sys, sparkrelay.records.formats; print({'numba', 'pyarrow', 'pyspark'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"
