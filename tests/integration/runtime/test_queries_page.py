"""The page of docs/how-to about queries, as it stands there, against a real instance."""

import datetime as dt
import json
import re
import urllib.request

import pytest
from pyspark.sql import functions as F
from tests.docs_pages import run, section
from tests.ports import own_port
from tests.waiting import LONG

from sparkrelay import Json, StreamsBuilder, String

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def test_the_page_s_queries(instance, make_topic, produce, wait_until):
    names = run("Ask what a store holds", dt=dt)
    source, port = make_topic("clicks"), own_port()
    builder = StreamsBuilder()
    clicks = builder.stream(source, key=String("user"), value=Json("time timestamp"))
    clicks.groupBy("user").agg(F.count("*").alias("n"), name="clicks").to(make_topic("n"))
    clicks.groupBy("user", F.window("time", "1 minute")).count(name="minutes").to(make_topic("minutes"))
    settings = names["asked_over_http"](f"127.0.0.1:{port}")
    del settings["application.id"], settings["bootstrap.servers"]
    streams = instance(builder, settings)
    streams.start()
    produce(source, [("ada", {"time": f"2026-01-01T00:0{n}:30Z"}) for n in range(3)])
    wait_until(lambda: streams.state == "RUNNING" and streams.query("clicks", "ada"), f"{streams.status}")
    wait_until(lambda: streams.query("clicks", "ada").n == 3, "the rows never came")
    row, some, minutes, frame = names["ask"](streams)
    assert row.asDict() == {"user": "ada", "n": 3}
    assert some == [row] == frame
    assert [one["count"] for one in minutes] == [1, 1, 1]
    (path,) = re.findall(r"8081(/stores/minutes/ada\S*)'", section("Ask what a store holds"))
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    request.add_header("Authorization", f"Bearer {settings['queries.token']}")
    with urllib.request.urlopen(request, timeout=LONG) as answer:
        assert [json.loads(line)["count"] for line in answer] == [1, 1, 1]
