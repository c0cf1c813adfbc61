"""Records what Java's own Protobuf library writes: `python tests/oracle/protobuf/record.py`, from the root.

The library is the one that ORC brings among PySpark's jars; `cases.jsonl` is what came out, and what the test compares
with.
"""

import base64
import json
import subprocess
import sys
from pathlib import Path

import pyspark

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2]))

#: Messages in Protobuf's text, of the file in tests/unit/records/test_protobuf.py.
ORDERS = [
    "",
    (
        'id: -1 user: "" items { sku: "a" n: -3 } counts { key: "k" value: 5 } color: BLUE '
        'at { seconds: 1 nanos: 2000 } note { value: "x" } big: 18446744073709551615 raw: "\\377" '
        'first { sku: "f" } ratios: 0.5'
    ),
    "id: -9223372036854775808 big: 1 ratios: [0.1, -0.0, 1e308, inf, -inf] at { seconds: -1 nanos: 999999000 }",
    'user: "ä€😀" items { } items { sku: "b" } items { n: -2147483648 } note { } first { }',
    'counts { key: "" value: -1 } counts { key: "z" } id: 300',
    "id: 127 color: RED at { }",
]


def main():
    from tests.unit.records.test_protobuf import FILES  # the descriptors stand once

    jars = Path(pyspark.__file__).parent / "jars"
    path = ":".join(str(jar) for name in ("orc-format-*", "jackson-*") for jar in jars.glob(f"{name}.jar"))
    case = {
        "name": "orders",
        "files": base64.b64encode(FILES.SerializeToString(deterministic=True)).decode(),
        "message": "shop.Order",
        "texts": ORDERS,
    }
    done = subprocess.run(
        ["java", "-cp", path, str(HERE / "Oracle.java")],
        input=json.dumps(case) + "\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)
    (HERE / "cases.jsonl").write_text(done.stdout)
    print(f"{len(ORDERS)} messages, by {next(jars.glob('orc-format-*.jar')).name}")


if __name__ == "__main__":
    main()
