"""`sparkrelay reset`: what it says, and what it refuses before it asks anybody."""

from pathlib import Path

import pytest

from sparkrelay.cli import app as command_line
from sparkrelay.cli.reset import lines
from sparkrelay.runtime.instance.reset import ResetPlan, ResetRequest
from sparkrelay.types import TopicPartition

PLAN = {
    "members": (),
    "offsets": {},
    "kept": {},
    "forgotten": frozenset(),
    "internal_topics": (),
    "doubtful": {},
    "transactional_ids": (),
    "directories": (),
    "holders": {},
    "begun": False,
}


def test_what_would_be_done_line_by_line():
    plan = ResetPlan(
        **PLAN
        | {
            "offsets": {TopicPartition("in", 0): (12, 3), TopicPartition("in", 1): (None, 0)},
            "kept": {TopicPartition("rates", 0): 9},
            "internal_topics": ("app-users-changelog",),
            "directories": (Path("/state/app/0/0_0"),),
            "transactional_ids": ("app-0_0", "app-0_1"),
        }
    )
    assert list(lines(ResetRequest(application_id="app", state_dir=Path("/state")), plan)) == [
        "application app:",
        "  in-0: offset 12 -> 3 (earliest)",
        "  in-1: offset none -> 0 (earliest)",
        "  rates-0: offset 9 stays",
        "  topic app-users-changelog: deleted",
        "  /state/app/0/0_0: removed",
        "  transactional ids fenced: 2",
    ]


def test_a_topic_that_may_be_another_applications_is_not_said_to_go():
    doubtful = {"app-eu-users-changelog": "or of an application app-eu"}
    topics = ("app-eu-users-changelog", "app-users-changelog")
    plan = ResetPlan(**PLAN | {"internal_topics": topics, "doubtful": doubtful})
    reported = list(lines(ResetRequest(application_id="app"), plan))
    assert "  topic app-eu-users-changelog: not clear whose (or of an application app-eu)" in reported
    assert "  topic app-users-changelog: deleted" in reported


def test_what_a_reader_may_miss_is_said():
    reported = list(lines(ResetRequest(application_id="app"), ResetPlan(**PLAN | {"begun": True})))
    assert "an earlier reset was interrupted" in reported[1]
    assert "auto.offset.reset decides" in reported[2]
    assert "give --state-dir on each host" in reported[3]


@pytest.mark.parametrize(("change", "nothing"), [({}, True), ({"begun": True}, False), ({"members": ("m",)}, False)])
def test_nothing_to_start_over(change, nothing):
    assert ResetPlan(**PLAN | change).nothing is nothing
    # Offsets that would be set where there are none are no sign of an application.
    assert ResetPlan(**PLAN | change | {"offsets": {TopicPartition("in", 0): (None, 0)}}).nothing is nothing


def test_wrong_usage_and_errors(capsys, tmp_path):
    here = ["--bootstrap-servers", "localhost:1"]
    assert command_line.run(["reset", "--application-id", "a/b", *here]) == 1
    assert "application.id 'a/b'" in capsys.readouterr().err
    assert command_line.run(["reset", "--application-id", "app", *here, "--to", "nowhere"]) == 2
    assert 'Invalid value "nowhere" for --to' in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--topics", "--input-topics", "--internal-topics"])
def test_an_option_that_names_no_topic(option, capsys):
    said = ["reset", "--application-id", "app", "--bootstrap-servers", "localhost:1", option, " , "]
    assert command_line.run(said) == 1
    assert "topics=' , ' names no topic" in capsys.readouterr().err
