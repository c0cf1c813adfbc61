"""What is said of a user's own session, before anything runs on it."""

from types import SimpleNamespace

import pytest

from sparkrelay.errors import ConfigException, StreamsException
from sparkrelay.runtime.session import RECOMMENDED, check_session

AS_RECOMMENDED = {key: value for key, (value, _) in RECOMMENDED.items()}


def session(*, local=False, **settings):
    conf = {**AS_RECOMMENDED, **{key.replace("__", "."): value for key, value in settings.items()}}
    java = SimpleNamespace(sc=lambda: SimpleNamespace(isLocal=lambda: local))
    context = SimpleNamespace(getConf=lambda: conf, _jsc=java)
    return SimpleNamespace(_jsparkSession=object(), sparkContext=context)


def test_nothing_is_said_of_a_session_as_recommended(caplog):
    check_session(session())
    assert not caplog.messages


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"spark__scheduler__mode": "FIFO"}, "spark.scheduler.mode is FIFO, not FAIR: restoring tasks hold up"),
        ({"spark__locality__wait": "3s"}, "spark.locality.wait is 3s, not 10m"),
        ({"spark__dynamicAllocation__enabled": "true"}, "spark.dynamicAllocation.minExecutors is not set"),
    ],
)
def test_what_costs_is_told_with_its_remedy(caplog, settings, words):
    check_session(session(**settings))
    (message,) = caplog.messages
    assert words in message


def test_of_a_local_session_nothing_is_said_that_is_for_clusters(caplog):
    check_session(session(local=True, spark__locality__wait="3s", spark__dynamicAllocation__enabled="true"))
    assert not caplog.messages


def test_speculation_is_refused():
    with pytest.raises(ConfigException, match="spark.speculation=true"):
        check_session(session(spark__speculation="true"))


def test_spark_connect_is_refused():
    with pytest.raises(StreamsException, match="a classic Spark session, not a types.SimpleNamespace"):
        check_session(SimpleNamespace())
