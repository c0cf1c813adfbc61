"""`sparkrelay broker create-topic` without a broker; with one: tests/integration/devkafka/test_broker_command.py."""

import pytest

from sparkrelay.cli import app as command_line
from sparkrelay.devkafka import topics


@pytest.fixture(autouse=True)
def no_broker(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture
def made(monkeypatch):
    """What would have been asked of a broker; the topic ``old`` is there already."""
    calls = []

    def create_topic(bootstrap_servers, name, *, partitions, config, exist_ok):
        calls.append((bootstrap_servers, name, partitions, config, exist_ok))
        return name != "old"

    def describe_topic(bootstrap_servers, name):
        return topics.TopicDescription(name, None, (0, 1, 2), {})

    monkeypatch.setattr(topics, "create_topic", create_topic)
    monkeypatch.setattr(topics, "describe_topic", describe_topic)
    return calls


def test_a_topic_on_a_given_broker(made, capsys):
    words = ["broker", "create-topic", "new", "--partitions", "2", "--bootstrap-servers", "kafka:9092"]
    assert command_line.run(words) == 0
    assert made == [("kafka:9092", "new", 2, {"retention.ms": "-1"}, True)]
    assert capsys.readouterr().out == "new: created, partitions: 2\n"


def test_the_spelling_of_kafkas_own_tools_is_corrected(made, capsys):
    assert command_line.run(["broker", "create-topic", "new", "--bootstrap-server", "kafka:9092"]) == 2
    assert "mean --bootstrap-servers?" in capsys.readouterr().err
    assert made == []


def test_a_topic_that_is_there_stays(made, capsys):
    assert command_line.run(["broker", "create-topic", "old", "--bootstrap-servers", "kafka:9092"]) == 0
    assert capsys.readouterr().out == "old: exists already, partitions: 3\n"


def test_without_a_broker_the_remedies_are_named(made, capsys):
    assert command_line.run(["broker", "create-topic", "new"]) == 3
    message = capsys.readouterr().err
    assert "sparkrelay broker start" in message
    assert "--bootstrap-servers" in message
    assert made == []


def test_a_topic_without_partitions_is_refused(made, capsys):
    assert command_line.run(["broker", "create-topic", "new", "--partitions", "0"]) == 1
    assert "--partitions 0" in capsys.readouterr().err
    assert made == []


def test_a_topic_without_a_name_is_asked_for_as_it_is_written(capsys):
    assert command_line.run(["broker", "create-topic"]) == 2
    message = capsys.readouterr().err
    assert "TOPIC" in message
    assert "--name" not in message


def test_a_topic_of_other_settings(made):
    words = [
        "--config",
        "cleanup.policy=compact",
        "--config",
        "retention.ms=60000",
        "--bootstrap-servers",
        "kafka:9092",
    ]
    assert command_line.run(["broker", "create-topic", "new", *words]) == 0
    assert made == [("kafka:9092", "new", 4, {"retention.ms": "60000", "cleanup.policy": "compact"}, True)]


def test_a_setting_without_a_value_is_refused(made, capsys):
    assert command_line.run(["broker", "create-topic", "new", "--config", "compact"]) == 1
    assert "--config compact: give KEY=VALUE" in capsys.readouterr().err
    assert made == []
