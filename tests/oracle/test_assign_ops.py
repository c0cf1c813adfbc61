"""Fields of the ``group`` operation that none of the recorded cases has."""

from __future__ import annotations

import pytest
from tests.oracle.assign_ops import run_operation

PROCESS = "00000000-0000-0000-0000-000000000001"


def answer(**more):
    given = {
        "assignor": "ha",
        "leader": PROCESS,
        "now_ms": 0,
        "tasks": [{"id": "0_0"}],
        "clients": [{"process_id": PROCESS, "consumers": [{"consumer_id": "a"}]}],
    }
    return run_operation("group", given | more)


@pytest.mark.parametrize(
    ("versions", "reported"),
    [
        ({}, (11, 11)),
        ({"min_user_version": 6}, (6, 11)),
        ({"min_user_version": 6, "min_supported_version": 8}, (6, 8)),
        ({"min_supported_version": 10}, (11, 10)),
    ],
)
def test_a_group_is_answered_in_the_versions_given(versions, reported):
    info = answer(**versions)["consumers"]["a"]["info"]
    assert (info["version"], info["commonly_supported_version"]) == reported


def test_a_group_that_probes_versions_is_not_stable():
    assert answer()["stable"]
    assert not answer(version_probing=True)["stable"]
