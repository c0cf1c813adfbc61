import functools

import pytest

from sparkrelay.client.config import ClientConfig
from sparkrelay.errors import ConfigException


def test_dotted_keys_are_read_and_numbers_may_be_text():
    config = ClientConfig.from_dict(
        {"bootstrap.servers": ["a:1", "[::1]:2"], "request.timeout.ms": "1500", "client.id": "me"}
    )
    assert config.servers() == (("a", 1), ("::1", 2))
    assert config.request_timeout_ms == 1500
    assert config.client_id == "me"


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("bootstrap.server", "bootstrap.servers"),
        ("sasl.user", "sasl.username"),
        ("ssl.ca.locaton", "ssl.ca.location"),
        ("request_timeout_ms", "request.timeout.ms"),
    ],
)
def test_an_unknown_key_names_the_nearest(key, nearest):
    with pytest.raises(ConfigException, match=f"did you mean '{nearest}'"):
        ClientConfig.from_dict({"bootstrap.servers": "a:1", key: "x"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "bootstrap.servers is required: HOST:PORT"),
        ({"bootstrap.servers": ""}, "bootstrap.servers is empty"),
        ({"bootstrap.servers": "localhost"}, "not HOST:PORT"),
        ({"bootstrap.servers": "localhost:99999"}, "not HOST:PORT"),
        ({"bootstrap.servers": "a:1", "request.timeout.ms": "soon"}, "request.timeout.ms='soon'"),
        ({"bootstrap.servers": "a:1", "request.timeout.ms": -1}, "request.timeout.ms=-1 is out of range"),
        ({"bootstrap.servers": "a:1", "request.timeout.ms": True}, "not a valid whole number"),
        ({"bootstrap.servers": "a:1", "security.protocol": "TLS"}, "security.protocol='TLS'"),
        ({"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL"}, "needs sasl.mechanism: one of PLAIN"),
        (
            {"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
            "needs sasl.username and sasl.password",
        ),
        (
            {
                "bootstrap.servers": "a:1",
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "me",
                "sasl.oauthbearer.client.secret": "s3cret",
                "sasl.oauthbearer.token.endpoint.url": "https://me:s3cret@idp/token",
            },
            "^sasl.oauthbearer.token.endpoint.url names a user; give sasl.oauthbearer.client.id and",
        ),
    ],
)
def test_malformed_settings_are_named(settings, message):
    with pytest.raises(ConfigException, match=message):
        ClientConfig.from_dict(settings)


def test_secrets_are_not_shown():
    config = ClientConfig.from_dict(
        {
            "bootstrap.servers": "a:1",
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "u",
            "sasl.password": " secret ",
            "ssl.key.password": "hidden",
            "oauth_cb": functools.partial(print, "a secret"),
        }
    )
    assert config.sasl_password == " secret "
    assert "secret" not in repr(config)
    assert "hidden" not in repr(config)
