"""The 22 queries of TPC-H as the benchmark writes them, over tables whose rows come, change and go.

``queries`` has their text. Rows are of a generator of our own, which has the benchmark's values, but not its exact
distributions. A table has one key column: of ``lineitem`` and ``partsupp``, whose keys are two columns, their texts.
"""
