"""The scripts of README.md and docs/how-to/run.md run as a reader would run them; Ctrl-C stops the pipeline in order.

Only the broker's address and the names of topics, groups and the application are others: tests share a broker.
"""

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from tests.scripts import running
from tests.waiting import LONG

from sparkrelay.own_files import state_folder

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
CARRIERS, DAYS = ("UA", "AA", "B6"), range(1, 8)


def scripts(page, language="python"):
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


(PIPELINE,) = scripts("README.md")
(SQL,) = scripts("README.md", "sql")
PRODUCER, READER = scripts("docs/how-to/run.md")[:2]


def line(carrier, day):
    window = f'{{"start":"2013-01-0{day}T00:00:00.000Z","end":"2013-01-0{day + 1}T00:00:00.000Z"}}'
    return f'{carrier} {{"carrier":"{carrier}","window":{window},"flights":1,"mean_delay":{5.0 * day}}}'


def write_scripts(folder, names, **scripts):
    """Write scripts of pages to files, with other names in them."""
    for name, script in scripts.items():
        text = re.sub("|".join(map(re.escape, names)), lambda found: names[found[0]], script)
        (folder / f"{name}.py").write_text(text)


def check_answers(pipeline, log, written, wait_until):
    """Have records produced beside a pipeline that runs; its answers are read by the page's reader."""
    with running(log.parent / "producer.py") as producer:
        assert producer.wait(120) == 0
    wait_until(lambda: pipeline.poll() is not None or written(), f"no output\n{log.read_text()}", 300)
    assert pipeline.poll() is None, log.read_text()
    with running(log.parent / "reader.py", stdout=subprocess.PIPE) as reader:
        expected = sorted(line(carrier, day) for carrier in CARRIERS for day in DAYS)
        # It ends by itself, five minutes after the last row.
        assert sorted(reader.stdout.readline().rstrip() for _ in expected) == expected, log.read_text()


def test_the_pipeline_of_the_readme(kafka, kafka_admin, make_topic, consumed, wait_until, tmp_path):
    flights, delays = make_topic("flights", 4), make_topic("delays", 4)
    names = {"localhost:9092": kafka.bootstrap_servers, 'stream("flights"': f'stream("{flights}"'}
    names |= {'send("flights"': f'send("{flights}"', '.to("delays"': f'.to("{delays}"', '["delays"]': f'["{delays}"]'}
    names |= {'"application.id": "delays"': f'"application.id": "{delays}"', '"look"': f'"look-{delays}"'}
    write_scripts(tmp_path, names, pipeline=PIPELINE, producer=PRODUCER, reader=READER)
    log = tmp_path / "pipeline.log"
    try:
        with log.open("wb") as out, running(tmp_path / "pipeline.py", stdout=out, stderr=out) as pipeline:
            check_answers(pipeline, log, lambda: consumed(delays), wait_until)
            assert line("AA", 1) in (ROOT / "docs" / "how-to" / "run.md").read_text().splitlines()

            # A terminal's Ctrl-C reaches every process of the script.
            os.killpg(pipeline.pid, signal.SIGINT)
            assert pipeline.wait(120) == -signal.SIGINT, log.read_text()
            # Who dies without an orderly stop stays in its group until the session timeout.
            group = kafka_admin.describe_consumer_groups([delays])[delays].result(LONG)
            assert list(group.members) == [], log.read_text()
            # Behind Python's last line, Spark's JVM may say something of its own while it ends.
            assert re.search(r"^KeyboardInterrupt", log.read_text(), re.MULTILINE), log.read_text()
            reported = (
                "compiling .* steps? in .* legs?",
                "starting with brokers",
                "RUNNING after",
                "generation 1, 1 process",
                "stopped after .* 4 tasks released",
            )
            for words in reported:
                assert re.search(rf"^\d\d:\d\d:\d\d {delays}.*: {words}", log.read_text(), re.MULTILINE), (
                    log.read_text()
                )
    finally:
        shutil.rmtree(state_folder() / delays, ignore_errors=True)


@pytest.mark.long
def test_the_pipeline_of_the_readme_in_sql(kafka, make_topic, consumed, wait_until, tmp_path):
    flights, delays = make_topic("flights", 4), make_topic("delays", 4)
    names = {"localhost:9092": kafka.bootstrap_servers, 'send("flights"': f'send("{flights}"'}
    names |= {'["delays"]': f'["{delays}"]', '"look"': f'"look-{delays}"'}
    write_scripts(tmp_path, names, producer=PRODUCER, reader=READER)
    file, log = tmp_path / "pipeline.sql", tmp_path / "pipeline.log"
    file.write_text(SQL.replace("topic 'flights'", f"topic '{flights}'").replace("topic 'delays'", f"topic '{delays}'"))
    (tmp_path / "main.py").write_text("from sparkrelay.cli import main\n\nmain()\n")
    options = ("--application-id", delays, "--bootstrap-servers", kafka.bootstrap_servers)
    start = "--setting", "auto.offset.reset=earliest"
    try:
        with (
            log.open("wb") as out,
            running(tmp_path / "main.py", "sql", str(file), *options, *start, stdout=out, stderr=out) as pipeline,
        ):
            check_answers(pipeline, log, lambda: consumed(delays), wait_until)
            os.killpg(pipeline.pid, signal.SIGINT)
            assert pipeline.wait(120) == 130, log.read_text()
            assert re.search(r"stopped after .* 4 tasks released", log.read_text()), log.read_text()
    finally:
        shutil.rmtree(state_folder() / delays, ignore_errors=True)


@pytest.mark.long
def test_a_refused_pipeline_says_one_sentence_below_the_readers_line(tmp_path):
    script = tmp_path / "pipeline.py"
    script.write_text(PIPELINE.replace("dep_delay is not null", "dep_dely is not null"))
    with running(script, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as pipeline:
        _, errors = pipeline.communicate(timeout=300)
    assert pipeline.returncode == 1
    trace = errors[errors.index("Traceback") :].splitlines()
    # Behind Python's last line, Spark's JVM may say something of its own while it ends.
    last = next(number for number, line in enumerate(trace) if number and not line.startswith(" "))
    assert re.search(r"TopologyException: pipeline\.py:\d+: .*dep_dely", trace[last]), errors
    assert last < 9, errors
