"""The record of the development broker, without a broker."""

import json
import os
import subprocess

import pytest

from sparkrelay.cli.app import run
from sparkrelay.devkafka.detached import find_broker, start_broker, stop_broker
from sparkrelay.devkafka.ports import free_port
from sparkrelay.errors import DevKafkaException
from sparkrelay.host import process_start


def record(state, *, pid, started, data_dir="/nowhere", temporary=False):
    state.mkdir(parents=True, exist_ok=True)
    values = {"pid": pid, "started": started, "port": free_port(), "data_dir": str(data_dir), "temporary": temporary}
    (state / "broker.json").write_text(json.dumps(values | {"log_path": str(state / "broker.log")}))


def test_without_a_record_nothing_runs(own_state, capsys):
    assert find_broker() is None
    assert stop_broker() is None
    assert run(["broker", "status"]) == 3
    assert run(["broker", "stop"]) == 0
    assert "No broker runs" in capsys.readouterr().err


def test_a_pid_given_to_somebody_else_is_left_alone(own_state, tmp_path, capsys):
    data = tmp_path / "data"
    data.mkdir()
    with subprocess.Popen(["/bin/sleep", "60"]) as somebody:
        record(own_state, pid=somebody.pid, started="long ago", data_dir=data, temporary=True)
        assert run(["broker", "status"]) == 3
        assert f"pid {somebody.pid}" in capsys.readouterr().err
        assert run(["broker", "stop"]) == 0
        assert "had already ended" in capsys.readouterr().err
        assert somebody.poll() is None
        somebody.kill()
    assert not data.exists()
    assert find_broker() is None


def test_a_living_broker_that_does_not_answer_is_named(own_state):
    record(own_state, pid=os.getpid(), started=process_start(os.getpid()))
    assert run(["broker", "status"]) == 1
    with pytest.raises(DevKafkaException, match="does not answer"):
        start_broker()
    with pytest.raises(DevKafkaException, match=r"data in /nowhere, not /elsewhere.*broker stop"):
        start_broker(data_dir="/elsewhere")


def test_an_unreadable_record_counts_as_none(own_state):
    own_state.mkdir(parents=True)
    for text in ("", "{}", "[1]", '{"pid": 1}'):
        (own_state / "broker.json").write_text(text)
        assert find_broker() is None


def test_a_failed_start_leaves_no_record(own_state, own_tmp, fake_java, kafka_jars, capsys):
    fake_java("echo broken; exit 1")
    assert run(["broker", "start"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "broken" in said.err
    assert find_broker() is None


def test_an_unusable_state_folder_is_named(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    with pytest.raises(DevKafkaException, match="XDG_STATE_HOME"):
        stop_broker()
