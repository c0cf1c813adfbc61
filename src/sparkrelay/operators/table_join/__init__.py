"""Joins of tables by their key.

A joined row is known by its key in both stores, so there is no third store, changelog or undo. The leg reads no
topic: it runs after the legs that keep the tables, reads the changed keys as they are (stores) and were (journals),
and emits the differences: two rows where a filter or grouping follows (``CHANGE``), else a row or tombstone. A join
of joins is one step with a tree (``JoinedTables``) that reads each store once. Deletions leave their times beside the
journal (``DELETIONS``): a joined row's time is the later of both, and a deleted row has none. A row that came and
went within a micro-batch makes no change.

Refused: a store with both sides in each row. It holds every row twice, writes a second changelog, and needs a wave
for each side.
"""
