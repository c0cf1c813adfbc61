"""The record of the development broker, without a broker."""

import json
import os
import subprocess

import pytest
from tests.other_users import MALLORY, give, modes, needs_root

from sparkrelay.cli.app import run
from sparkrelay.devkafka.detached import find_broker, start_broker, stop_broker
from sparkrelay.errors import DevKafkaException
from sparkrelay.host import process_start


def record(state, *, pid, started, data_dir="/nowhere", temporary=False):
    state.mkdir(parents=True, exist_ok=True)
    # Nobody listens on port 1.
    values = {"pid": pid, "started": started, "port": 1, "data_dir": str(data_dir), "temporary": temporary}
    (state / "broker.json").write_text(json.dumps(values | {"log_path": str(state / "broker.log")}))


@pytest.fixture
def somebody():
    """A process that is none of ours."""
    with subprocess.Popen(["/bin/sleep", "600"]) as process:
        yield process
        process.kill()


def test_without_a_record_nothing_runs(own_state, capsys):
    assert find_broker() is None
    assert stop_broker() is None
    assert run(["broker", "status"]) == 3
    assert run(["broker", "stop"]) == 0
    assert "No broker is running" in capsys.readouterr().err


def test_a_pid_given_to_somebody_else_is_left_alone(own_state, tmp_path, capsys, somebody):
    data = tmp_path / "data"
    data.mkdir()
    record(own_state, pid=somebody.pid, started="long ago", data_dir=data, temporary=True)
    assert run(["broker", "status"]) == 3
    assert f"pid {somebody.pid}" in capsys.readouterr().err
    assert run(["broker", "stop"]) == 0
    assert "had already ended" in capsys.readouterr().err
    assert somebody.poll() is None
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


@needs_root
def test_a_record_of_another_user_is_not_believed(own_state, tmp_path, somebody):
    """As root, `stop` would end any process and remove any folder that it names."""
    data = tmp_path / "data"
    data.mkdir()
    record(own_state, pid=somebody.pid, started=process_start(somebody.pid), data_dir=data, temporary=True)
    for name in ("default", "mine"):
        give(MALLORY, own_state)
        for action in (find_broker, stop_broker, lambda name: start_broker(name=name)):
            with pytest.raises(DevKafkaException, match=f"owner uid {MALLORY}, .* another user .* XDG_STATE_HOME"):
                action(name)
        give(0, own_state)
        (own_state / "broker-mine").mkdir(exist_ok=True)
    os.chown(own_state / "broker-mine", MALLORY, -1)
    with pytest.raises(DevKafkaException, match=f"broker-mine .owner uid {MALLORY}"):
        stop_broker("mine")
    own_state.chmod(0o777)
    with pytest.raises(DevKafkaException, match="mode 0777. may be written to by others"):
        stop_broker()
    assert somebody.poll() is None
    assert data.is_dir()


@pytest.mark.parametrize("planted", ["broker.lock", "broker.log"])
def test_no_link_among_the_records_is_followed(own_state, own_tmp, fake_java, kafka_jars, tmp_path, planted):
    own_state.mkdir(parents=True)
    (own_state / planted).symlink_to(tmp_path / "victim")
    fake_java("exit 1")
    assert run(["broker", "start"]) == 1
    assert not (tmp_path / "victim").exists()


def test_folders_are_closed_to_others_under_any_umask(own_state, own_tmp, fake_java, kafka_jars, tmp_path):
    fake_java('case "$*" in *StorageTool*) exit 0;; esac\ntouch made\nexit 1')
    before = os.umask(0)
    try:
        for more in ([], ["--name", "mine", "--data", str(tmp_path / "given")]):
            assert run(["broker", "start", *more]) == 1
    finally:
        os.umask(before)
    found = {own_state: modes(own_state), tmp_path / "given": modes(tmp_path / "given")}
    assert {"broker.lock", "broker.log", "broker-mine/broker.log"} < set(found[own_state])
    assert {"server.properties", "made"} < set(found[tmp_path / "given"])
    for folder, names in found.items():
        for name, mode in names.items():
            assert mode == (0o700 if (folder / name).is_dir() else 0o600), folder / name


def test_brokers_of_different_names_know_nothing_of_each_other(own_state, capsys):
    record(own_state, pid=os.getpid(), started=process_start(os.getpid()))
    record(own_state / "broker-second", pid=os.getpid(), started="long ago")
    assert find_broker().alive
    assert not find_broker("second").alive
    assert find_broker("third") is None
    assert run(["broker", "status", "--name", "third"]) == 3
    assert "sparkrelay broker start --name third" in capsys.readouterr().err
    assert run(["broker", "stop", "--name", "second"]) == 0
    assert find_broker().alive
    with pytest.raises(DevKafkaException, match="'sparkrelay broker stop' first, or start another one beside it"):
        start_broker(port=2)


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a" * 65, "a b"])
def test_a_name_that_cannot_be_a_folders_is_refused(own_state, name, capsys):
    for command in ("start", "stop", "status"):
        assert run(["broker", command, f"--name={name}"]) == 1
        assert f"{name!r} cannot be the name of a broker" in capsys.readouterr().err
