"""Under which group protocols a scenario runs: under both, unless one of these marks says otherwise."""

import pytest

only_classic = pytest.mark.parametrize("protocol", ["classic"], indirect=True)
only_consumer = pytest.mark.parametrize("protocol", ["consumer"], indirect=True)

#: Nobody joins a group or leaves one: on the wire both protocols are alike, and the second is for `make test-all`.
without_members = pytest.mark.parametrize(
    "protocol", ["classic", pytest.param("consumer", marks=pytest.mark.long)], indirect=True
)
