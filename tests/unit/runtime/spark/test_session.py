"""What is said of a user's own session, before anything runs on it."""

import sys
from types import SimpleNamespace

import pytest

from sparkrelay.errors import ConfigException, StreamsException
from sparkrelay.runtime.spark.session import RECOMMENDED, check_session, local_slots, spark_session

AS_RECOMMENDED = {key: value for key, (value, _) in RECOMMENDED.items()}


class RuntimeConf(dict):
    """``spark.conf``: what was set, and defaults for the rest."""

    def __init__(self, host_zone, settings):
        super().__init__({"spark.sql.session.timeZone": host_zone, **settings})
        self.getAll = settings


def session(*, local=False, host_zone=None, **settings):
    conf = {**AS_RECOMMENDED, **{key.replace("__", "."): value for key, value in settings.items()}}
    java = SimpleNamespace(sc=lambda: SimpleNamespace(isLocal=lambda: local))
    context = SimpleNamespace(getConf=lambda: conf, _jsc=java, pythonExec=sys.executable)
    if host_zone is not None:
        del conf["spark.sql.session.timeZone"]
    return SimpleNamespace(_jsparkSession=object(), sparkContext=context, conf=RuntimeConf(host_zone, conf))


def test_nothing_is_said_of_a_session_as_recommended(caplog):
    check_session(session())
    assert not caplog.messages


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"spark__scheduler__mode": "FIFO"}, "spark.scheduler.mode is FIFO, not FAIR: restoring tasks delay running"),
        ({"spark__locality__wait": "3s"}, "spark.locality.wait is 3s, not 10m"),
        ({"spark__dynamicAllocation__enabled": "true"}, "spark.dynamicAllocation.minExecutors is not set"),
        ({"spark__sql__timestampType": "timestamp_ntz"}, "text with a 'Z' cannot be decoded"),
        ({"spark__python__worker__reuse": "false"}, "starts a worker, which reopens"),
        (
            {"spark__sql__execution__pyspark__udf__tracebackWithLocals__enabled": "true"},
            "show the values of variables, including records",
        ),
    ],
)
def test_what_costs_is_reported_with_its_remedy(caplog, settings, words):
    check_session(session(**settings))
    (message,) = caplog.messages
    assert words in message


def test_of_a_local_session_nothing_is_said_that_is_for_clusters(caplog):
    check_session(session(local=True, spark__locality__wait="3s", spark__dynamicAllocation__enabled="true"))
    assert not caplog.messages


@pytest.mark.parametrize("local", [True, False])
def test_a_zone_of_the_hosts_own_is_reported(caplog, local):
    check_session(session(local=local, host_zone="America/New_York"))
    (message,) = caplog.messages
    assert "is not set: to_date() and hour() use this host's zone, America/New_York" in message
    assert "Set it to UTC" in message


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "GMT", "Z"])
def test_of_hosts_on_utc_nothing_is_said(caplog, zone):
    check_session(session(host_zone=zone))
    assert not caplog.messages


def test_a_zone_that_was_chosen_is_the_same_everywhere(caplog):
    check_session(session(spark__sql__session__timeZone="Europe/Berlin"))
    assert not caplog.messages


def test_on_encrypted_yarn_nothing_is_said_of_tcp(caplog):
    settings = {"spark__master": "yarn", "spark__python__unix__domain__socket__enabled": "false"}
    check_session(session(**settings, spark__io__encryption__enabled="true"))
    assert not caplog.messages
    check_session(session(**settings))
    assert "40 ms more" in caplog.text


def test_what_cannot_work_is_refused():
    with pytest.raises(ConfigException, match="spark.speculation=true"):
        check_session(session(spark__speculation="true"))


@pytest.mark.parametrize(
    ("master", "cpus", "slots"), [("local[10]", None, 10), ("local[10,4]", "2", 5), ("k8s://a", "2", None)]
)
def test_slots_are_of_as_many_cores_as_a_task_takes(master, cpus, slots):
    conf = {} if cpus is None else {"spark.task.cpus": cpus}
    assert local_slots(SimpleNamespace(sparkContext=SimpleNamespace(master=master, _conf=conf))) == slots


def test_spark_connect_is_refused():
    with pytest.raises(StreamsException, match="a classic Spark session, not a types.SimpleNamespace"):
        check_session(SimpleNamespace())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.remote", "sc://spark-1"),
        ("spark.api.mode", "connect"),
        ("SPARK_REMOTE", "sc://spark-1"),
        ("SPARK_CONNECT_MODE_ENABLED", "1"),
        ("SPARK_API_MODE", "Connect"),
    ],
)
def test_spark_connect_is_refused_before_there_is_a_session(monkeypatch, key, value):
    conf = {}
    if key.startswith("spark"):
        conf[key] = value
    else:
        monkeypatch.setenv(key, value)
    with pytest.raises(StreamsException, match=f"{key}={value} selects Spark Connect.*Leave {key} out"):
        spark_session("delays", **conf)
