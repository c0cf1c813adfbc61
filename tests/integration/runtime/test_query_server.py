"""Queries over HTTP of two real instances: whoever is asked, who has the rows answers; standby copies where allowed."""

import dataclasses
import json
import threading
import urllib.error
import urllib.parse
import urllib.request

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from tests.ports import own_port
from tests.topics import write
from tests.waiting import LONG, wait_until

from sparkrelay import Json, StreamsBuilder, String, register_data_sources
from sparkrelay.errors import ConfigException, InvalidStateStorePartitionException

from .conftest import active

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

PARTITIONS = 4
TOKEN = "s3cret-of-queries"
USERS = [f"u{number:02}" for number in range(20)]


def pipeline(source, make_topic):
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("user"), value=Json("shop string, amount int, time timestamp"))
    stream.groupBy("user").agg(F.sum("amount").alias("total"), name="totals").to(make_topic("totals", PARTITIONS))
    stream.withWatermark("time", "1 hour").groupBy("user", F.window("time", "1 minute")).count(name="minutes").to(
        make_topic("minutes", PARTITIONS)
    )
    stream.groupBy(F.upper("shop").alias("shop"), "user").count(name="shops").to(make_topic("shops", PARTITIONS))
    return builder


def asked(port, path, token=TOKEN, **headers):
    """Return the status, the headers and the body."""
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=LONG) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def caught_up(streams):
    return all(one.offset_lag == 0 for one in streams.all_local_store_partition_lags()["totals"].values())


def lines(body):
    return [json.loads(line) for line in body.splitlines()]


def two_instances(instance, make_topic, bootstrap_servers):
    """Start two instances of one application, each with half of the tasks and a standby copy of the others."""
    source = make_topic("orders", PARTITIONS)
    builder, ports, made = pipeline(source, make_topic), (own_port(), own_port()), []
    for port in ports:
        settings = {"application.server": f"127.0.0.1:{port}", "num.standby.replicas": 1, "queries.token": TOKEN}
        made.append(instance(builder, {**settings, "acceptable.recovery.lag": 0}))
        made[-1].start()
    rows = [(u, {"shop": "a", "amount": n, "time": "2026-01-01T00:00:30Z"}) for n, u in enumerate(USERS)]
    write(bootstrap_servers, source, rows)

    def shared():
        # Not 3 and 1: then another task would move in the middle of a test.
        halves = [active(streams) for streams in made]
        return all(len(half) == PARTITIONS // 2 for half in halves) and not set.intersection(*halves)

    wait_until(shared, "the tasks are not shared")
    wait_until(lambda: len(lines(asked(ports[0], "/stores/totals")[2])) == len(USERS), "the rows never came")
    return ports, made


@pytest.fixture(scope="module")
def pair(module_instance, module_topic, kafka):
    """Two instances that the tests ask, and leave as they are."""
    return two_instances(module_instance, module_topic, kafka.bootstrap_servers)


def test_whoever_is_asked(pair):
    """One hop to who has the rows; many rows come from both."""
    ports, (first, second) = pair
    for port in ports:
        status, headers, body = asked(port, "/stores/totals/u07")
        assert (status, json.loads(body)) == (200, {"user": "u07", "total": 7})
        (task,) = json.loads(headers["SparkRelay-Tasks"])
        assert (task["role"], task["lag"]) == ("active", 0)
        assert asked(port, "/stores/totals/nobody")[0] == 404
        status, headers, body = asked(port, "/stores/totals?limit=5")
        assert (status, len(lines(body)), headers["SparkRelay-Truncated"]) == (200, 5, "true")
        status, headers, body = asked(port, "/stores/totals?from=u03&to=u05")
        assert sorted(row["user"] for row in lines(body)) == ["u03", "u04", "u05"]
        assert len({task["host"] for task in json.loads(headers["SparkRelay-Tasks"])}) == 2
        _, _, body = asked(port, "/stores/totals", Accept="application/vnd.apache.arrow.stream")
        table = pa.ipc.open_stream(body).read_all()
        assert sorted(table.column("user").to_pylist()) == USERS
        path = "/stores/minutes/u03?from=2026-01-01T00:00:00Z&to=2026-01-01T00:00:00Z"
        assert [row["count"] for row in lines(asked(port, path)[2])] == [1]
        assert len(lines(asked(port, "/stores/minutes")[2])) == len(USERS)
        # A column that is computed does not hide the one that decides the partition.
        key = urllib.parse.quote(json.dumps(["A", "u03"]))
        assert json.loads(asked(port, f"/stores/shops/{key}")[2]) == {"shop": "A", "user": "u03", "count": 1}
    for streams in (first, second):
        assert streams.store("totals", everywhere=True).count() == len(USERS)
        assert 0 < streams.store("totals").count() < len(USERS)
    owners = {}
    for streams, port in zip((first, second), ports, strict=True):
        for user in USERS:
            found = streams.query_metadata_for_key("totals", user)
            owners.setdefault(user, set()).add(found.active_host.port)
            assert len(found.standby_hosts) == 1
            if found.active_host.port == port:
                assert streams.query("totals", user)["user"] == user
            else:
                with pytest.raises(InvalidStateStorePartitionException, match=f"{found.active_host} has it"):
                    streams.query("totals", user)
                wait_until(lambda s=streams, u=user: s.query("totals", u, stale=True) is not None, "no standby")
        assert {one.host_info.port for one in streams.metadata_for_all_streams_clients()} == set(ports)
        lags = streams.all_local_store_partition_lags()["totals"]
        assert sorted(lags) == list(range(PARTITIONS))
        wait_until(lambda s=streams: caught_up(s), "it lags")
    assert all(len(ports) == 1 for ports in owners.values())
    # A forwarded question goes no further.
    user = next(user for user in USERS if second.query_metadata_for_key("totals", user).active_host.port == ports[1])
    headers = {"SparkRelay-Forwarded": "another"}
    assert asked(ports[0], f"/stores/totals/{user}", **headers)[0] == 421
    assert asked(ports[0], f"/stores/totals/{user}?stale=true", **headers)[0] == 200


@pytest.mark.long
def test_pages_have_each_row_once_whoever_is_asked(pair, monkeypatch):
    ports, (streams, _) = pair
    (totals,) = (line for line in lines(asked(ports[0], "/stores")[2]) if line["store"] == "totals")
    assert totals["partitions"] == PARTITIONS
    for store in ("totals", "minutes", "shops"):
        found = []
        for partition in range(PARTITIONS):
            after = ""
            while after is not None:
                # Page by page from one instance and the other.
                path = f"/stores/{store}?partition={partition}&limit=2&after={urllib.parse.quote(after)}"
                status, headers, body = asked(ports[len(found) % 2], path)
                assert status == 200, body
                rows = lines(body)
                assert len(rows) <= 2
                found += [row["user"] for row in rows]
                after = headers["SparkRelay-Following"]
        assert sorted(found) == USERS, store
    monkeypatch.setattr(streams, "_config", dataclasses.replace(streams._config, queries_max_rows=2))
    rows = streams.store("totals", everywhere=True).collect()
    assert sorted(row["user"] for row in rows) == USERS


@pytest.mark.long
def test_any_application_reads_the_tables_of_instances_that_run(pair, spark):
    ports, _ = pair
    register_data_sources(spark)

    def live(store, **options):
        reader = spark.read.format("sparkrelay-state").option("mode", "live").option("storeName", store)
        settings = {"application.server": f"127.0.0.1:{ports[0]}", "queries.token": TOKEN, **options}
        for name, value in settings.items():
            reader = reader.option(name, value)
        return reader.load()

    totals = live("totals")
    assert totals.schema.simpleString() == "struct<user:string,total:bigint>"
    assert sorted(map(tuple, totals.collect())) == [(user, n) for n, user in enumerate(USERS)]
    assert totals.rdd.getNumPartitions() == PARTITIONS
    some = live("totals", keys='["u03", "u05", "nobody", "u03"]')
    assert some.rdd.getNumPartitions() == 1
    assert sorted(map(tuple, some.collect())) == [("u03", 3), ("u05", 5)]
    assert totals.where("user = 'u03'").count() == 1
    assert totals.count() == len(USERS), "what was derived from a DataFrame does not change it"
    assert live("minutes").where("window.start = '2026-01-01T00:00:00Z'").count() == len(USERS)
    assert live("shops", key='["A", "u03"]').first()["count"] == 1
    gone = f"127.0.0.1:{own_port()}"
    either = {"application.server": f"{gone}, 127.0.0.1:{ports[1]}"}
    assert live("totals", **either).count() == len(USERS)
    for options, words in (
        ({"application.server": gone, "queries.timeout.ms": "200"}, "does not answer.*mode=changelog"),
        ({"queries.token": "wrong"}, "401"),
        ({"storeName": "others"}, "no store 'others' that can be read, but 'minutes', 'shops', 'totals'"),
        ({"kafka.bootstrap.servers": "b:1"}, "no effect here: mode=live"),
        ({"application.server": "nowhere"}, "application.server='nowhere' must be host:port"),
        ({"queries.timeout.ms": "soon"}, "queries.timeout.ms='soon' must be"),
        ({"mode": "dead"}, "mode='dead' must be changelog or live"),
        ({"mode": "changelog"}, "'application.server' has no effect here|'queries.token' has no effect here"),
    ):
        with pytest.raises(PySparkException, match=words):
            live("totals", **options)
    said = totals._jdf.queryExecution().toString() + totals._jdf.queryExecution().stringWithStats()
    assert "sparkrelay-state" in said
    assert TOKEN not in said


def test_what_is_refused(pair, caplog, capfd):
    """Each in words; and the token is nowhere to be read."""
    ports, (streams, _) = pair
    for path, status, words in (
        ("/stores/none/x", 404, "no store 'none'"),
        ("/nothing", 404, "use /stores"),
        ("/stores/totals/x?color=red", 400, "unknown parameter 'color'"),
        ("/stores/totals/x?stale=yes", 400, "true or false"),
        ("/stores/totals/x?max_lag=-1", 400, "whole number"),
        ("/stores/totals?isolation=dirty", 400, "read_uncommitted"),
        ("/stores/shops/x", 400, "it is not JSON. A key in text is written as"),
        ("/stores/minutes?from=tomorrow", 400, "is not a time"),
        ("/stores/totals/x?from=1", 501, "has no windows"),
        ("/stores/totals/" + "x" * 100_000, 414, "at most"),
    ):
        found, _, body = asked(ports[0], path)
        assert (found, words in json.loads(body)["error"]) == (status, True), body
    for token in (None, "", TOKEN[:-1], TOKEN + "x"):
        assert asked(ports[0], "/stores", token)[0] == 401
    assert {line["store"] for line in lines(asked(ports[0], "/stores")[2])} == {"totals", "minutes", "shops"}
    seen = caplog.text + "".join(capfd.readouterr()) + repr(streams) + repr(streams._config) + streams.describe()
    assert TOKEN not in seen


@pytest.mark.long
def test_who_stops_is_not_asked_any_more(instance, make_topic, kafka):
    """The other one takes over and answers for everything; meanwhile its copies do, where that is allowed."""
    ports, (first, second) = two_instances(instance, make_topic, kafka.bootstrap_servers)
    seen, stopped = [], threading.Event()

    def ask():
        while not stopped.is_set():
            seen.extend((user, *asked(ports[0], f"/stores/totals/{user}?stale=true")[::2]) for user in USERS[:4])

    # How far a copy lags it knows as of its last look, which may have been before there was anything.
    wait_until(lambda: all(first.query("totals", user, stale=True) for user in USERS), "the copies are empty")
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        assert second.stop(LONG)
        wait_until(lambda: len(active(first)) == PARTITIONS, "it was not taken over")
    finally:
        stopped.set()
        asking.join()
    assert {(user, status, body) for user, status, body in seen} == {
        (user, 200, json.dumps({"user": user, "total": n}, separators=(",", ":")).encode() + b"\n")
        for n, user in enumerate(USERS[:4])
    }
    assert len(lines(asked(ports[0], "/stores/totals")[2])) == len(USERS)
    with pytest.raises(OSError):
        asked(ports[1], "/stores")


def test_nobody_else_may_ask_without_a_token(instance, make_topic):
    """Who listens beyond this machine needs a token, or says that somebody else listens."""
    builder = pipeline(make_topic("orders", PARTITIONS), make_topic)
    streams = instance(builder, {"application.server": f"0.0.0.0:{own_port()}"})
    with pytest.raises(ConfigException, match=r"set queries\.token"):
        streams.start()
