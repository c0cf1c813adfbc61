"""What a broker's refusal of a member says: the setting and its value, and what to do, each once."""

from __future__ import annotations

import pytest

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.consumer.group.classic_requests import MemberSettings, refusal

SETTINGS = MemberSettings(group_id="g", assignors=(("range", False), ("sticky", True)), group_instance_id="i-1")


@pytest.mark.parametrize(
    ("code", "setting", "advice"),
    [
        (ErrorCode.FENCED_INSTANCE_ID, "group.instance.id='i-1'", "give each member its own"),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "partition.assignment.strategy=range,sticky", "offer the same one"),
    ],
)
def test_a_refusal_names_the_setting_with_its_value_and_the_remedy_once(code, setting, advice):
    text = str(refusal(code, "joining", SETTINGS))
    assert text.startswith(f"joining in group 'g' with {setting}: {code.name} ({code}): ")
    assert text.count(advice) == 1


def test_other_refusals_name_the_assignors_on_offer():
    assert "in group 'g' with range,sticky: GROUP_MAX_SIZE_REACHED" in str(refusal(81, "joining", SETTINGS))
