"""What SparkRelay costs and gives, measured beside its peers on the same machine: ``python -m bench``.

``drain``, ``latency`` and ``steady`` run whole instances, each system in its own processes, one after the other;
``python -m bench.records`` measures the record codecs alone. ``docs/benchmarks.md`` has the method and the figures.
"""
