"""Record batches to Arrow and back, and the formats of keys and values.

Modules are imported by name (``from sparkrelay.records.decode import decode``): those with compiled loops load numba,
which importing ``sparkrelay`` must not.
"""
