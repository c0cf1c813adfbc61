"""What the operators have in common that keep a table: rows by key, which change.

A change is two rows, as it was and as it is (``CHANGE``); ``changes`` resolves what remains of it after filters. How
further ways out begin is in docs/internals/micro-batches.md, "Ways out of a table".
"""
