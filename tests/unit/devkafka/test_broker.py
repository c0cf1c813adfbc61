"""What DevKafka says when things go wrong; the java here is a shell script."""

import socket
import subprocess
import sys

import pytest
from tests.other_users import MALLORY, give, needs_root

from sparkrelay.devkafka import DevKafka
from sparkrelay.devkafka.folders import add_user, make_temporary, sweep
from sparkrelay.errors import DevKafkaException

FORMATS = 'case "$*" in *StorageTool*) exit 0;; esac\n'


def test_the_end_of_the_log_is_shown(fake_java, kafka_jars, own_tmp):
    fake_java(FORMATS + "for i in $(seq 50); do echo line $i; done; exit 3")
    with pytest.raises(DevKafkaException, match=r"(?s)exit code 3\. End of its log, .*broker\.log:.*line 50") as caught:
        DevKafka().start()
    assert "line 20\n" not in str(caught.value)
    [folder] = own_tmp.iterdir()
    assert (folder / "broker.log").exists(), "the log stays for whoever reads the message"


def test_only_this_starts_log_is_shown(fake_java, kafka_jars, tmp_path):
    (tmp_path / "broker.log").write_text("an old story\n")
    fake_java(FORMATS + "exit 1")
    with pytest.raises(DevKafkaException, match="the log is empty"):
        DevKafka(data_dir=tmp_path).start()


def test_a_known_cause_is_named_with_its_remedy(fake_java, kafka_jars, tmp_path):
    fake_java(FORMATS + "echo 'KafkaException: Failed to acquire lock on file .lock in /x'; exit 1")
    with pytest.raises(DevKafkaException, match="Another broker uses this data folder"):
        DevKafka(data_dir=tmp_path).start()


def test_a_failed_format_is_shown(fake_java, kafka_jars, tmp_path):
    fake_java("echo 'Unknown feature'; exit 2")
    with pytest.raises(DevKafkaException, match=r"(?s)could not format .* \(exit 2\).*Unknown feature"):
        DevKafka(data_dir=tmp_path).start()


def test_a_taken_port_is_named(fake_java, kafka_jars, tmp_path):
    fake_java("exit 0")
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(DevKafkaException, match=f"Port {port} is taken"):
            DevKafka(port=port, data_dir=tmp_path).start()


def test_another_free_port_is_tried_when_somebody_took_ours(fake_java, kafka_jars, tmp_path):
    fake_java(FORMATS + f"echo start >> {tmp_path}/starts; echo 'BindException: Address already in use'; exit 1")
    with pytest.raises(DevKafkaException, match="Address already in use"):
        DevKafka(data_dir=tmp_path / "data").start()
    assert (tmp_path / "starts").read_text().count("start") == 3


def test_the_port_is_held_until_the_broker_is_closed(fake_java, kafka_jars, tmp_path):
    """While it is down, too: clients know the port by now, and nobody else may get it."""
    fake_java(FORMATS + "exit 1")
    kafka = DevKafka(data_dir=tmp_path / "data")
    with pytest.raises(DevKafkaException, match="ended with exit code 1"):
        kafka.start()
    address = ("127.0.0.1", int(kafka.bootstrap_servers.rpartition(":")[2]))
    with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
        other.bind(address)
    kafka.close()
    with socket.socket() as other:
        other.bind(address)


def test_an_unusable_folder_is_named(fake_java, kafka_jars, tmp_path):
    fake_java("exit 0")
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(DevKafkaException, match=str(blocked)):
        DevKafka(data_dir=blocked / "data").start()


@pytest.mark.parametrize("settings", [{"heap_mb": 64}, {"heap_mb": 2048}, {"port": 0}, {"port": 70_000}])
def test_settings_out_of_range_are_refused(settings):
    [(name, value)] = settings.items()
    with pytest.raises(DevKafkaException, match=f"{name}={value}"):
        DevKafka(**settings)


def test_a_broker_that_was_never_started_says_so():
    kafka = DevKafka()
    for ask in ("bootstrap_servers", "pid", "data_dir", "log_path"):
        with pytest.raises(DevKafkaException, match=r"start\(\)"):
            getattr(kafka, ask)
    with pytest.raises(DevKafkaException, match="SIGSTOP"):
        kafka.pause()
    kafka.stop()
    kafka.kill()
    kafka.close()
    assert repr(kafka) == "DevKafka(not started, stopped)"


def test_folders_of_the_dead_are_swept_and_others_left(own_tmp):
    mine, foreign = make_temporary(), own_tmp / "sparkrelay-kafka-foreign"
    foreign.mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        dead, shared = own_tmp / "sparkrelay-kafka-dead", own_tmp / "sparkrelay-kafka-shared"
        for folder in (dead, shared):
            folder.mkdir()
            add_user(folder, child.pid)
        add_user(shared, 1)  # a process that lives on
        abroad = own_tmp / "sparkrelay-kafka-abroad"
        abroad.mkdir()
        (abroad / "processes").write_text(f"another-host/1 {child.pid} 1\n")
        sweep()
        assert dead.exists(), "its process is alive"
        child.communicate(b"\n")
    sweep()
    assert sorted(own_tmp.iterdir()) == sorted([mine, foreign, shared, abroad])


@needs_root
def test_folders_of_other_users_are_not_swept(own_tmp):
    with subprocess.Popen(["/bin/true"]) as child:
        child.wait()
        foreign = own_tmp / "sparkrelay-kafka-theirs"
        foreign.mkdir()
        add_user(foreign, child.pid)
    give(MALLORY, foreign)
    sweep()
    assert foreign.exists()
    give(0, foreign)
    sweep()
    assert not foreign.exists()


@needs_root
@pytest.mark.parametrize("option", ["data_dir", "log_dir"])
def test_a_folder_that_others_may_write_to_is_refused(fake_java, kafka_jars, tmp_path, option):
    fake_java("exit 1")
    folders = {"data_dir": tmp_path / "data", option: tmp_path / "theirs"}
    (tmp_path / "theirs").mkdir()
    give(MALLORY, tmp_path / "theirs")
    with pytest.raises(DevKafkaException, match=f"theirs .owner uid {MALLORY}, mode 0755. belongs to another user"):
        DevKafka(**folders).start()
    assert list((tmp_path / "theirs").iterdir()) == []
