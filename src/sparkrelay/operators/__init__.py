"""The operators of pipelines: one folder each, with all that there is about it.

- ``step``: the frozen description that a user's call makes. It knows no Spark.
- ``plan``: what the step is on DataFrames, which Catalyst resolves: columns, projections, contents of the store.
- ``run``: what workers run. It travels to them, with what the user gave.
- ``keys``: how its keys lie in the store.

Folders do not know one another.
"""
