import pickle

import pyarrow as pa
import pytest

from sparkrelay.errors import SchemaRegistryException, UnknownSchemaException
from sparkrelay.records.avro.writer import columns_to_avro
from sparkrelay.records.formats import Avro
from sparkrelay.records.formatted import columns_to_format, format_to_columns
from sparkrelay.records.framing import UNKNOWN_SECONDS, WriterSchemas, prefix, schema_ids

LONG, INT, TEXT = '"long"', '"int"', '"string"'


def test_numbers_of_schemas():
    values = pa.array([prefix(7) + b"x", b"", None, b"\x01\0\0\0\x07", prefix(2**32 - 1), b"\0\0\0\0"])
    assert schema_ids(values).tolist() == [7, -1, -2, -1, 2**32 - 1, -1]
    assert schema_ids(values[4:]).tolist() == [2**32 - 1, -1]
    assert schema_ids(pa.array([], pa.binary())).tolist() == []
    assert schema_ids(pa.array([None], pa.binary())).tolist() == [-2]


def test_what_goes_to_workers_is_a_copy_that_cannot_ask():
    driver = WriterSchemas({1: INT}, {2: LONG}.get)
    worker = pickle.loads(pickle.dumps(driver))
    with pytest.raises(UnknownSchemaException) as raised:
        worker.require([1, 2, 3])
    assert raised.value.schema_ids == "2,3"
    assert pickle.loads(pickle.dumps(raised.value)).schema_ids == "2,3"
    driver.learn([2, 3])
    assert driver.known() == {1: INT, 2: LONG, 3: None}
    worker.learn([2])
    assert worker.known() == {1: INT}


def test_a_registry_that_does_not_answer_leaves_a_number_unknown():
    def refuse(number):
        raise SchemaRegistryException(f"{number}")

    schemas = WriterSchemas({}, refuse)
    with pytest.raises(SchemaRegistryException):
        schemas.learn([4])
    assert len(schemas) == 0


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_records_that_name_any_number_do_not_have_the_registry_asked_all_the_time():
    clock, registry, asked = Clock(), {1: LONG}, []

    def ask(number):
        asked.append(number)
        return registry.get(number)

    schemas = WriterSchemas({}, ask, clock=clock)
    schemas.learn(range(1000, 1256))
    registry[7] = INT
    schemas.require([7])
    assert "not asked for schema 7, by which it was written: it did not have 256 others" in schemas.why_unknown(7)
    clock.now = UNKNOWN_SECONDS - 1
    schemas.forget()
    schemas.learn([1000])
    assert (len(schemas), len(asked)) == (256, 256)
    clock.now += 1
    schemas.forget()
    assert len(schemas) == 0
    with pytest.raises(UnknownSchemaException):
        schemas.require([7])
    schemas.learn([7])
    assert schemas.get(7) == INT


def test_a_number_that_a_registry_gets_to_know_later_is_asked_for_again():
    clock, registry = Clock(), {}
    schemas = WriterSchemas({1: LONG}, registry.get, clock=clock)
    schemas.learn([2])
    assert "did not have schema 2, by which it was written, and is asked again after 5 minutes" in schemas.why_unknown(
        2
    )
    before = schemas.version
    schemas.forget()
    schemas.learn([2])
    assert schemas.version == before
    registry[2] = INT
    clock.now += UNKNOWN_SECONDS
    schemas.forget()
    assert schemas.known() == {1: LONG}
    schemas.learn([2])
    assert schemas.known() == {1: LONG, 2: INT}
    assert schemas.version == before + 2
    clock.now += 10 * UNKNOWN_SECONDS
    schemas.forget()
    assert schemas.version == before + 2, "what there is stays known"


def test_rows_of_several_writers_keep_their_order():
    form = Avro(LONG, framed=True, writers=WriterSchemas({1: LONG, 2: INT, 3: TEXT, 4: None}))
    wanted = pa.schema([("value", pa.int64())])
    values = [prefix(2) + b"\x02", prefix(1) + b"\x04", None, prefix(3) + b"\x02x", prefix(2) + b"\x06", b"\x02",
              prefix(4) + b"\x02", prefix(1), prefix(1) + b"\x08"]  # fmt: skip
    columns, bad = format_to_columns(pa.array(values), form, "value", wanted)
    assert columns["value"].to_pylist() == [1, 2, None, None, 3, None, None, None, 4]
    assert [one.index for one in bad] == [3, 5, 6, 7]
    assert "schema 3: " in bad[0].reason
    assert "did not have schema 4" in bad[2].reason
    columns, bad = format_to_columns(pa.array(values[6:7]), form, "value", wanted)
    assert (columns["value"].to_pylist(), len(bad)) == ([None], 1)


def test_the_number_is_written_in_front():
    rows = pa.RecordBatch.from_pydict({"value": [1, 2]})
    written = columns_to_format(rows, Avro(LONG, framed=True, schema_id=258), pa.array([False, True]))
    assert written.to_pylist() == [b"\0\0\0\x01\x02\x02", b""]
    assert columns_to_avro(rows, LONG).to_pylist() == [b"\x02", b"\x04"]
