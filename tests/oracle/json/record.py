"""Records what Java's Jackson writes, which serializers of JSON Schema use: `python tests/oracle/json/record.py`.

The library is the one among PySpark's jars; `cases.jsonl` is what came out, and what the test compares with.
"""

import json
import subprocess
from pathlib import Path

import pyspark

HERE = Path(__file__).parent
SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "ratio": {"type": "number"},
        "small": {"type": "number"},
        "amount": {"oneOf": [{"type": "null"}, {"type": "number"}]},
        "ok": {"type": ["null", "boolean"]},
        "items": {
            "type": ["null", "array"],
            "items": {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "integer"}}},
        },
        "counts": {"type": ["null", "object"], "additionalProperties": {"type": ["null", "integer"]}},
        "at": {"oneOf": [{"type": "null"}, {"type": "string", "format": "date-time"}]},
        "day": {"oneOf": [{"type": "null"}, {"type": "string", "format": "date"}]},
        "raw": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "any": {},
    },
}


def main():
    jars = Path(pyspark.__file__).parent / "jars"
    path = ":".join(str(jar) for jar in jars.glob("jackson-*.jar"))
    done = subprocess.run(
        ["java", "-cp", path, str(HERE / "Oracle.java")],
        input=json.dumps({"schema": SCHEMA}), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)
    (HERE / "cases.jsonl").write_text(done.stdout)
    print(f"{len(json.loads(done.stdout)['written'])} objects, by {next(jars.glob('jackson-databind-*.jar')).name}")


if __name__ == "__main__":
    main()
