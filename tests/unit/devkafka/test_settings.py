import re
from pathlib import Path

from hypothesis import given, strategies as st

from sparkrelay.devkafka.settings import render, server_settings


def settings(**overrides):
    named = {key.replace("_", "."): value for key, value in overrides.items()}
    return server_settings(port=20001, controller_port=20002, log_dirs=Path("/data/kraft"), overrides=named)


def test_the_broker_listens_on_loopback_only():
    assert settings()["listeners"] == "PLAINTEXT://127.0.0.1:20001,CONTROLLER://127.0.0.1:20002"
    assert settings()["advertised.listeners"] == "PLAINTEXT://127.0.0.1:20001"


def test_one_node_is_enough_for_every_internal_topic():
    factors = {key: value for key, value in settings().items() if key.endswith(("replication.factor", "min.isr"))}
    assert len(factors) >= 6
    assert set(factors.values()) == {"1"}


def test_overrides_win():
    assert settings(auto_create_topics_enable="true")["auto.create.topics.enable"] == "true"


def test_a_topic_must_be_made():
    assert settings()["auto.create.topics.enable"] == "false"


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=4))
def test_java_reads_back_what_was_written(values):
    assert load_properties(render(values)) == values


def load_properties(text):
    """java.util.Properties.load, as far as its specification concerns lines without continuation."""
    found = {}
    for line in text.split("\n")[:-1]:
        assert not re.match(r"[ \t\f]*[#!]", line), "a comment"
        assert "\r" not in line
        match = re.match(r"[ \t\f]*((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
        found[unescape(match[1])] = unescape(match[2])
    return found


def unescape(text):
    named = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
    plain = re.sub(
        r"\\(?:u([0-9a-f]{4})|(.))",
        lambda m: chr(int(m[1], 16)) if m[1] else named.get(m[2], m[2]),
        text,
    )
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
