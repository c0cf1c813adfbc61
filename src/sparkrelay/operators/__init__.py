"""The operators of pipelines, one folder each.

- ``step``: the frozen description that a user's call makes. No Spark.
- ``plan``: the step on DataFrames resolved by Catalyst: columns, projections, contents of the store.
- ``run``: the part that workers run. It is pickled together with the user's functions.
- ``keys`` or ``layout``: the format of its keys and rows in the store.

Operators do not import one another, unless one extends or contains another (``tests/unit/operators/test_folders``).
"""
