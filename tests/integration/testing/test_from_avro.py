"""``from_avro`` over records' bytes gives what Spark batch gives; its jar is no part of PySpark."""

import subprocess
import tempfile
from pathlib import Path

import pytest
from tests.scripts import running

from sparkrelay.devkafka import jars
from sparkrelay.devkafka.folders import locked
from sparkrelay.own_files import cache_folder

pytestmark = [pytest.mark.integration, pytest.mark.long]

#: The newest that is published; it runs in Spark 4.3, too.
VERSION = "4.2.0"
_MODULE = f"""<ivy-module version="2.0">
  <info organisation="sparkrelay" module="tests"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.spark" name="spark-avro_2.13" rev="{VERSION}" transitive="false" conf="default->*"/>
  </dependencies>
</ivy-module>
"""

PIPELINE = '''
import json, sys
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro
from sparkrelay import Json, StreamsBuilder, spark_session
from sparkrelay.errors import SparkRelayError
from sparkrelay.runtime.compile import parsed_values
from sparkrelay.testing import TopologyTestDriver

spark = spark_session("avro", **{"spark.jars": sys.argv[1]})
SCHEMA = json.dumps({"type": "record", "name": "A", "fields": [
    {"name": "a", "type": "long"},
    {"name": "b", "type": ["null", "string"]},
    {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "d", "type": {"type": "array", "items": "int"}},
    {"name": "m", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
    {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
    {"name": "s", "type": ["null", {"type": "record", "name": "S", "fields": [{"name": "x", "type": "double"}]}]},
]})
rows = spark.sql("""
    SELECT id AS a, if(id % 3 = 0, NULL, 'x' || id) AS b, timestamp_micros(id * 1234567) AS t,
           array(cast(id AS int), 7) AS d, cast(id / 100 AS decimal(10, 2)) AS m, 'Y' AS e,
           if(id % 2 = 0, named_struct('x', id / 3), NULL) AS s
    FROM range(200)
""")
values = [bytes(row[0]) for row in rows.select(to_avro(F.struct("*"), SCHEMA)).collect()]
read, real = [], parsed_values.ParsedFields
parsed_values.ParsedFields = lambda *given: read.append(real(*given)) or read[-1]


def found(values, **options):
    builder = StreamsBuilder(spark)
    steps(builder.stream("in"), **options).to("out", value=Json())
    with TopologyTestDriver(builder.build(), {"max.batch.retries": 0}, spark=spark, batch="all") as driver:
        driver.create_input_topic("in").pipe_rows((None, value) for value in values)
        return driver.create_output_topic("out").read_rows()


def wanted(values, **options):
    frame = spark.createDataFrame([(bytearray(value),) for value in values], "value binary")
    return [json.loads(text) for text, in steps(frame, **options).select(F.to_json(F.struct("*"))).collect()]


def steps(rows, **options):
    return rows.select(from_avro("value", SCHEMA, **options).alias("v")).select("v.*", (F.col("v.a") + 1).alias("next"))


assert found(values) == wanted(values)
assert read, "the worker has not read them"
longer = [values[0] + b"x", values[1]]
assert found(longer) == wanted(longer)
count = len(read)
options = {"options": {"mode": "PERMISSIVE"}}
broken = [values[0][:-1], b"", values[1]]
assert found(broken, **options) == wanted(broken, **options)
assert len(read) == count, "options are left to Spark"
try:
    found(broken)
except SparkRelayError:
    pass
else:
    raise AssertionError("Spark ends at what is no Avro, and so do we")
print("agreed")
'''


def _jar():
    home = cache_folder() / f"spark-avro-{VERSION}.jar"
    home.parent.mkdir(parents=True, exist_ok=True)
    with locked(home.with_name(f"{home.name}.lock")):
        if not home.is_file():
            with tempfile.TemporaryDirectory(prefix=f".{home.name}-", dir=home.parent) as folder:
                code, output = jars._run_ivy(Path(folder), _MODULE, ("jar",))
                fetched = [*Path(folder).rglob(f"spark-avro_2.13-{VERSION}.jar")]
                if code or not fetched:
                    pytest.skip(f"spark-avro {VERSION} cannot be fetched here: {output[-500:]}")
                fetched[0].rename(home)
    return home


def test_rows_are_those_of_spark_batch(tmp_path):
    script = tmp_path / "pipeline.py"
    script.write_text(PIPELINE)
    with running(script, _jar(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        output, _ = process.communicate(timeout=300)
    assert output.strip().endswith("agreed"), output[-3000:]
