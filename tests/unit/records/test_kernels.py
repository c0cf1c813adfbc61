from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numba
import pytest

from sparkrelay.records import _native, compile_kernels

SOURCES = Path(_native.__file__).parent


def test_all_compiled_loops_are_loaded():
    code = (
        "import sys, sparkrelay.records as r; r.compile_kernels(); print(*(m for m in sys.modules if 'records.' in m))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    with_loops = [path for path in SOURCES.rglob("*.py") if "\n@kernel(" in path.read_text()]
    assert len(with_loops) > 10
    for path in with_loops:
        assert ".".join(path.relative_to(SOURCES.parents[1]).with_suffix("").parts) in loaded.split()
    compile_kernels()


def test_numba_is_loaded_by_the_first_call_alone():
    code = """if True:
        import sys
        import pyarrow as pa
        from sparkrelay.records import formatted, row_checksums
        from sparkrelay.records.batches import decode
        from sparkrelay.records.batches import encode
        loaded, bytes_ = "numba" in sys.modules, pa.array([b"a"])
        print(loaded, row_checksums.checksums(1, bytes_, bytes_)[0] > 0, "numba" in sys.modules)
    """
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["False", "True", "True"]


def test_what_a_driver_asks_of_types_needs_no_loop():
    """Without rows it only matters whether the types are possible."""
    code = """if True:
        import sys
        import pyarrow as pa
        from google.protobuf import descriptor_pb2
        from sparkrelay.records.formats import Avro, Protobuf
        from sparkrelay.records.formatted import columns_to_format
        from sparkrelay.records.json.writer import columns_to_json
        from sparkrelay.records.keys import key_bytes
        from sparkrelay.records.json.reader import json_to_columns
        flat = [pa.string(), pa.int64(), pa.float64(), pa.float32(), pa.bool_(), pa.timestamp("us", "UTC"), pa.date32()]
        nested = [pa.list_(pa.string()), pa.map_(pa.string(), pa.float64()), pa.struct([("a", pa.string())])]
        for kind in flat + nested:
            schema = pa.schema([("a", kind)])
            rows, bad = json_to_columns(pa.array([], pa.binary()), schema)
            assert rows.schema == schema and not rows.num_rows and not bad
            assert not len(columns_to_json(rows))
            if kind not in nested[:2]:
                assert not len(key_bytes([pa.array([], kind), pa.array([], pa.bool_())]))
        nested[1] = pa.map_(pa.string(), pa.int32())
        kinds = [pa.string(), pa.int64(), pa.bool_(), *nested]
        named = pa.schema([(f"f{number}", kind) for number, kind in enumerate(kinds)])
        none = pa.RecordBatch.from_arrays([pa.array([], kind) for kind in kinds], schema=named)
        inner = {"type": "record", "name": "s", "fields": [{"name": "a", "type": "string"}]}
        types = ["string", "long", "boolean", {"type": "array", "items": ["null", "string"]},
                 {"type": "map", "values": "int"}, inner]
        fields = [{"name": f"f{number}", "type": ["null", type_]} for number, type_ in enumerate(types)]
        assert not len(columns_to_format(none, Avro({"type": "record", "name": "r", "fields": fields})))
        file = descriptor_pb2.FileDescriptorProto(name="f", syntax="proto3")
        message, field = file.message_type.add(name="M"), descriptor_pb2.FieldDescriptorProto
        message.nested_type.add(name="S").field.add(name="a", number=1, type=field.TYPE_STRING, label=1)
        message.field.add(name="f0", number=1, type=field.TYPE_STRING, label=1)
        message.field.add(name="f3", number=2, type=field.TYPE_STRING, label=3)
        message.field.add(name="f5", number=3, type=field.TYPE_MESSAGE, type_name=".M.S", label=1)
        descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
        assert not len(columns_to_format(none.select(["f0", "f3", "f5"]), Protobuf(descriptors, "M")))
        print("numba" in sys.modules)
    """
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["False"]


def test_threads_that_need_a_loop_at_once_make_it_once():
    made, gate = [], threading.Barrier(4)

    def make():
        made.append(1)
        return lambda value: value + 1

    deferred = _native.Deferred(make)

    def call():
        gate.wait()
        assert deferred(1) == 2

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]


def test_where_nothing_can_be_kept_kernels_are_compiled_all_the_same(monkeypatch):
    real = numba.njit

    def njit(*args, cache=False, **settings):
        if cache:
            raise RuntimeError("cannot cache function 'f': no locator available for file 'f.py'")
        return real(*args, **settings)

    monkeypatch.setattr(numba, "njit", njit)
    assert _native.kernel("int64(int64)")(lambda value: value + 1)(41) == 42


def test_other_failures_of_the_compiler_are_not_hidden(monkeypatch):
    def njit(*_, **__):
        raise RuntimeError("something else")

    monkeypatch.setattr(numba, "njit", njit)
    with pytest.raises(RuntimeError, match="something else"):
        _native.kernel("int64(int64)")(lambda value: value)(1)


def test_it_is_said_once_that_loops_are_compiled(monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(_native, "_compiling_logged", False)
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    for _ in range(2):
        assert _native.kernel("int64(int64)")(lambda value: value + 2)(1) == 3
    assert [record.message.partition(",")[0] for record in caplog.records] == [
        "compiling the loops that read and write records"
    ]
