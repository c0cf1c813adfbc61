"""`--command-config FILE`: what such a file may say, and that the commands use it."""

import socket
import threading

import pytest

from sparkrelay.cli import app as command_line, options as shared_options
from sparkrelay.cli.options import read_properties
from sparkrelay.errors import ConfigException
from sparkrelay.planning import live_group

#: How a TLS record begins that shakes hands.
HANDSHAKE = b"\x16"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "client.properties"


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        yield server


def test_a_file_of_client_settings(file, tmp_path):
    file.write_text("# comment\n\nsecurity.protocol = SASL_SSL\nsasl.password=a=b\n")
    assert read_properties(file) == {"security.protocol": "SASL_SSL", "sasl.password": "a=b"}
    file.write_text("security.protocol\n")
    with pytest.raises(ConfigException, match="line 1: write key=value"):
        read_properties(file)
    with pytest.raises(ConfigException, match="cannot be read"):
        read_properties(tmp_path / "none")


@pytest.mark.parametrize(("command", "failed"), [("plan", 2), ("reset", 1)])
def test_commands_connect_as_the_file_says(command, failed, file, listener, monkeypatch, capsys):
    monkeypatch.setattr(live_group, "_TIMEOUT_S", 1.0)
    monkeypatch.setattr(shared_options, "_BOOTSTRAP_S", 1.0)
    file.write_text("security.protocol=SSL\n")
    began = []

    def broker():
        connection, _ = listener.accept()
        with connection:
            began.append(connection.recv(1))

    address = f"127.0.0.1:{listener.getsockname()[1]}"
    answers = threading.Thread(target=broker)
    answers.start()
    options = ["--bootstrap-servers", address, "--application-id", "x", "--command-config", str(file)]
    assert command_line.run([command, *options]) == failed
    answers.join()
    assert began == [HANDSHAKE]
    assert address in capsys.readouterr().err


@pytest.mark.parametrize(("command", "failed"), [("plan", 2), ("reset", 1)])
def test_a_setting_that_is_none_is_named(command, failed, file, capsys):
    file.write_text("security.protocoll=SSL\n")
    options = ["--bootstrap-servers", "localhost:1", "--application-id", "x", "--command-config", str(file)]
    assert command_line.run([command, *options]) == failed
    assert "security.protocoll" in capsys.readouterr().err


def test_a_group_from_a_file_needs_no_login(file, capsys):
    file.write_text("{}")
    assert command_line.run(["plan", "--state", str(file), "--command-config", str(file)]) == 2
    assert "--command-config" in capsys.readouterr().err
