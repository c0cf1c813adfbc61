"""Tables of the newest row of each key.

Such a table is an aggregation whose state is the last row of each key, and which may delete. A table that keeps
another one's changes by foreign key is one too; it takes former rows as deletions (``operators.foreign_join``).
"""
