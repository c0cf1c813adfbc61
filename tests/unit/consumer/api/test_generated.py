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


def test_nothing_of_the_package_loads_pyspark():
    code = """if True:
        import asyncio, importlib, pkgutil, sys
        import sparkrelay.consumer
        for module in pkgutil.walk_packages(sparkrelay.consumer.__path__, "sparkrelay.consumer."):
            importlib.import_module(module.name)
        from sparkrelay.consumer import AsyncConsumer, BoundedFetcher, Consumer, NetworkThread, TopicPartition
        config = {"bootstrap.servers": "127.0.0.1:1", "value.deserializer": "string"}
        T0 = TopicPartition("t", 0)
        with NetworkThread() as network, Consumer(config, network=network) as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 5)
            assert consumer.records(0) == []
            assert consumer.metrics()["assigned-partitions"] == 1
        async def main():
            async with AsyncConsumer(config) as consumer:
                await consumer.assign([T0])
                assert not (await consumer.poll(0)).num_rows
        asyncio.run(main())
        with BoundedFetcher({"bootstrap.servers": "127.0.0.1:1"}) as fetcher:
            assert not list(fetcher.fetch({T0: (5, 5)}))
        print([name for name in sys.modules if name.partition(".")[0] in ("pyspark", "py4j")])
    """
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "[]\n"
