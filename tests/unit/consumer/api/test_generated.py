"""AsyncConsumer has the methods of Consumer; neither loads what it does not need."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]


def test_the_awaiting_consumer_is_up_to_date():
    check = [sys.executable, "-m", "scripts.generate_async_consumer", "--check"]
    run = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_a_consumer_needs_neither_spark_nor_the_loops():
    code = """if True:
        import sys
        from sparkrelay.consumer import Consumer
        with Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}) as consumer:
            consumer.subscribe(["t"])
            consumer.poll(0)
        print([name for name in ("pyspark", "numba", "pandas") if name in sys.modules])
    """
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "[]\n"
