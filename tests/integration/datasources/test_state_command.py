"""`sparkrelay state` on a real cluster, once the instance is gone."""

import json

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.cli.app import run

pytestmark = pytest.mark.integration

ROWS = [(f"user-{n % 7}", {"shop": "ns"[n % 2], "n": n}) for n in range(50)]


@pytest.fixture
def state(kafka, application_id, capsys):
    """`state(*arguments)` runs the command; returns its exit code, what it printed, and what it complained of."""

    def command(*arguments, application=application_id):
        capsys.readouterr()
        where = ["--application-id", application, "--bootstrap-servers", kafka.bootstrap_servers]
        code = run(["state", *arguments, *where])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return command


def test_tables_are_listed_counted_looked_into_and_dumped(
    instance, make_topic, produce, wait_until, state, application_id, tmp_path
):
    topic = make_topic("sales", partitions=2)
    produce(topic, ROWS)
    builder = StreamsBuilder()
    stream = builder.stream(topic, key=String("user"), value=Json("shop string, n long"))
    stream.groupBy("user", "shop").agg(F.count("*").alias("count"), F.avg("n").alias("avg"), name="users")
    stream.groupBy("shop").agg(F.sum("n").alias("sum"), name="shops")
    stream.dropDuplicates(["user"], name="firsts").to(make_topic("firsts"))
    streams = instance(builder)
    streams.start()
    expected = {(user, row["shop"]): [] for user, row in ROWS}
    for user, row in ROWS:
        expected[user, row["shop"]].append(row["n"])
    total = f'{{"shop":"n","sum":{sum(row["n"] for _, row in ROWS if row["shop"] == "n")}}}\n'
    wait_until(lambda: state("get", "shops", "n")[:2] == (0, total), "not everything is counted")
    wait_until(lambda: state("count", "users")[1] == f"{len(expected)}\n", "not everything is counted")
    assert streams.stop(60)

    # To whoever goes by names alone, its topics look like those of an application with half of its name.
    half, _, rest = application_id.rpartition("-")
    code, out, err = state("list", application=half)
    # Other tests' applications may have such names, and stores of which nothing was written.
    assert (code, [line for line in out.splitlines() if rest in line]) == (0, [])
    code, _, err = state("count", f"{rest}-users", application=half)
    assert code == 1
    assert f"is the changelog of store 'users' of application '{application_id}'" in err

    code, out, _ = state("list")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert (code, [*lines]) == (0, ["STORE", "firsts", "shops", "users"])
    assert lines["users"].split()[:3] == ["users", f"{application_id}-users-changelog", "2"]
    assert lines["users"].endswith("user string, shop string, count int64, avg double")
    assert lines["firsts"].endswith("none: the keys that a stream has had")
    found = [json.loads(line) for line in state("get", "users", "user-3")[1].splitlines()]
    wanted = [(shop, numbers) for (user, shop), numbers in expected.items() if user == "user-3"]
    assert sorted((row["shop"], row["count"], row["avg"]) for row in found) == sorted(
        (shop, len(numbers), sum(numbers) / len(numbers)) for shop, numbers in wanted
    )
    code, out, complaint = state("get", "users", "user-3", "no")
    assert (code, out, complaint) == (3, "", "store users has no row with the key user-3 no\n")

    file = tmp_path / "users.parquet"
    assert state("dump", "users", "--to", str(file))[0] == 0
    rows = {(row["user"], row["shop"]): row["count"] for row in pq.read_table(file).to_pylist()}
    assert rows == {key: len(numbers) for key, numbers in expected.items()}
    assert [path.name for path in tmp_path.iterdir() if "users" in path.name] == ["users.parquet"]
    code, _, complaint = state("dump", "users", "--to", str(file))
    assert (code, "exists already" in complaint) == (1, True)
    code, _, complaint = state("count", "firsts")
    assert (code, "can be read: 'shops', 'users'" in complaint) == (1, True)
    code, _, complaint = state("list", application="nobody")
    assert (code, "application.id='nobody' right" in complaint) == (1, True)
