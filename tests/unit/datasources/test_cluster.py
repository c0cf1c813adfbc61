"""What options say of the Kafka client."""

import pytest

from sparkrelay.datasources.cluster import client_settings, require_committed
from sparkrelay.errors import ConfigException

SERVERS = {"kafka.bootstrap.servers": "here:9092"}


def test_options_of_the_client_have_a_prefix():
    settings = client_settings({**SERVERS, "storename": "x", "kafka.sasl.password": "hunter2"})
    assert settings == {
        "bootstrap.servers": "here:9092",
        "sasl.password": "hunter2",
        "client.id": "sparkrelay-reader",
    }
    assert "hunter2" not in repr(settings)
    assert client_settings({**SERVERS, "kafka.client.id": "mine"})["client.id"] == "mine"


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigException, match="option kafka.bootstrap.servers is missing"):
        client_settings({"storename": "x"})
    with pytest.raises(ConfigException, match="did you mean 'fetch.max.bytes'"):
        client_settings({**SERVERS, "kafka.fetch.max.byte": "1"})
    require_committed(client_settings(SERVERS))
    with pytest.raises(ConfigException, match="committed records only"):
        require_committed(client_settings({**SERVERS, "kafka.isolation.level": "read_uncommitted"}))
