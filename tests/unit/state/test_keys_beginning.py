"""Keys of a store that begin with given bytes."""

import pytest

from sparkrelay.errors import IncompatibleTopologyException


def test_keys_are_found_by_what_they_begin_with(driver):
    """Also long ones, whose place in the order only their front decides."""
    long = b"l" * 600
    keys = [b"a", b"a1", b"a2", b"b", long + b"1", long + b"2", long, b"l" * 500]
    driver.apply(dict.fromkeys(keys, b"v"))

    def found(*beginnings):
        contents = driver.stamp().contents
        found = driver.store.look("s", lambda view: view.keys_beginning(beginnings), contents=contents)
        return sorted(found.values.to_pylist())

    assert found() == found(b"c", b"a1x") == []
    assert found(b"a", b"b") == [b"a", b"a1", b"a2", b"b"]
    assert found(b"a2") == [b"a2"]
    assert found(long) == [long, long + b"1", long + b"2"]
    assert found(long + b"2") == [long + b"2"]
    assert found(b"l" * 490) == sorted([b"l" * 500, long, long + b"1", long + b"2"])
    with pytest.raises(IncompatibleTopologyException):
        driver.store.look("s", lambda view: view.keys_beginning([b"a"]), contents="something else")
