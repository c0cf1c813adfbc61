"""Against fastavro: what it writes is read, and what is written are its bytes; damage gives clean errors only."""

import io
import json

import fastavro
import pyarrow as pa
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.examples import examples
from tests.unit.records.avro.random_schemas import as_column, schemas, values, written

from sparkrelay.records.avro.reader import AvroReader
from sparkrelay.records.avro.writer import columns_to_avro

SLOW = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None, max_examples=examples(200)
)


@SLOW
@given(st.data())
def test_what_fastavro_writes_is_read_and_written_again(data):
    schema = data.draw(schemas())
    rows = data.draw(st.lists(values(schema) | st.none(), max_size=5))
    records = pa.array([None if row is None else written(schema, row) for row in rows], pa.binary())
    batch, bad = AvroReader(json.dumps(schema), None, "value").read(records)
    assert bad == []
    batch.validate(full=True)
    nothing = {field["name"]: None for field in schema["fields"]}
    assert batch.to_pylist() == [nothing if row is None else as_column(schema, row) for row in rows]

    tombstones = records.is_null()
    again = columns_to_avro(batch, json.dumps(schema), left_out=tombstones)
    assert again.to_pylist() == [record or b"" for record in records.to_pylist()]
    assert (
        columns_to_avro(batch.slice(1), json.dumps(schema), left_out=tombstones[1:]).to_pylist()
        == again.to_pylist()[1:]
    )


@SLOW
@given(st.data())
def test_only_the_wanted_columns_are_read(data):
    schema = data.draw(schemas())
    rows = data.draw(st.lists(values(schema), min_size=1, max_size=3))
    wanted = data.draw(st.sets(st.sampled_from([field["name"] for field in schema["fields"]])))
    batch, bad = AvroReader(json.dumps(schema), None, "value", wanted).read(
        pa.array([written(schema, row) for row in rows])
    )
    assert bad == []
    assert batch.num_rows == len(rows)
    expected = [as_column(schema, row) for row in rows]
    assert batch.to_pylist() == [{name: row[name] for name in row if name in wanted} for row in expected] or not wanted


@SLOW
@given(st.data())
def test_damage_gives_clean_errors_and_leaves_the_other_rows_alone(data):
    schema = data.draw(schemas())
    row = data.draw(values(schema))
    whole = written(schema, row)
    damaged = bytearray(whole[: data.draw(st.integers(0, len(whole)))] + data.draw(st.binary(max_size=10)))
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    reader = AvroReader(json.dumps(schema), None, "value")
    batch, bad = reader.read(pa.array([whole, bytes(damaged), whole]))
    batch.validate(full=True)
    rows = batch.to_pylist()
    assert rows[0] == rows[2] == as_column(schema, row)
    assert [one.index for one in bad] in ([], [1])
    if bad:
        assert rows[1] == {field["name"]: None for field in schema["fields"]}
    else:
        # What still decodes is what fastavro makes of it.
        found = fastavro.schemaless_reader(io.BytesIO(damaged), fastavro.parse_schema(schema), None)
        again, _ = reader.read(pa.array([written(schema, found)]))
        assert repr(again.to_pylist()) == repr(rows[1:2])


@SLOW
@given(st.data())
def test_any_bytes_give_clean_errors(data):
    schema = data.draw(schemas(depth=3))
    batch, _ = AvroReader(json.dumps(schema), None, "value").read(pa.array(data.draw(st.lists(st.binary(max_size=40)))))
    batch.validate(full=True)
