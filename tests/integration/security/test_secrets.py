"""No secret stands in anything that an instance shows, logs or leaves behind."""

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.ports import own_port

from sparkrelay.types import TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

WRONG = "MARKED-wrong"
KEY = "MARKED-key-of-workers"
#: Prefixed, of other clients' spellings, and not needed by this login: shown nowhere either.
MARKED = {
    "ssl.key.password": "MARKED-key",
    "consumer.ssl.key.password": "MARKED-consumer-key",
    "producer.sasl.oauthbearer.client.secret": "MARKED-client-secret",
    "admin.sasl.oauthbearer.config": "MARKED-oauth-config",
    "basic.auth.user.info": "ada:MARKED-registry",
    "queries.token": "MARKED-token",
}


@pytest.mark.long
def test_a_secret_is_shown_nowhere(secured, topic, write, tmp_path):
    login = secured.login("PLAIN")
    password = login["sasl.password"]
    source, sink = topic(login), topic(login)
    write(login, TopicPartition(source, 0), [json.dumps({"n": 3})])
    events = tmp_path / "events"
    events.mkdir()
    config = login | MARKED | {
        "application.id": source,
        "state.dir": str(tmp_path / "state"),
        "metrics.port": own_port(),
        "application.server": f"127.0.0.1:{own_port()}",
        "max.batch.retries": 0,
        "schema.registry.url": "http://127.0.0.1:9",
        "consumer.sasl.password": password,
    }  # fmt: skip
    options = {
        "config": config,
        "source": source,
        "sink": sink,
        "wrong": WRONG,
        "key": KEY,
        "clear": secured.broker.bootstrap_servers,
        "spark": {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": f"file://{events}",
            # Errors of Python steps show what their variables hold, those of ours among them.
            "spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled": "true",
        },
    }
    out = tmp_path / "out"
    with out.open("wb") as printed:
        child = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("secrets_child.py"))],
            input=json.dumps(options).encode(),
            stdout=printed,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=500,
        )
    assert child.returncode == 0, out.read_bytes()[-6000:].decode(errors="replace")
    assert b"everything was shown" in out.read_bytes()
    assert b"it failed" in out.read_bytes()
    seen = {str(file): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert len(seen) > 3, seen.keys()
    assert any(b"SparkListenerJobStart" in data for name, data in seen.items() if "events" in name)
    for secret in (password, WRONG, KEY, *MARKED.values()):
        # In base64 it looks in three ways, by what stands in front of it.
        encoded = [base64.b64encode(b"\0" * shift + secret.encode())[4 if shift else 0 : -4] for shift in range(3)]
        for form in (secret.encode(), secret.encode().hex().encode(), *encoded):
            for name, data in seen.items():
                at = data.find(form)
                assert at < 0, f"{secret!r} in {name}: ...{data[max(0, at - 300) : at + 60]!r}"
