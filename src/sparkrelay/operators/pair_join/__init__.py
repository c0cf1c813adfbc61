"""Many-to-many joins of two tables, by columns that are not a key.

::

    left table  -> topic by the equal columns -> rows by the equal columns and their key --+
    right table -> topic by the equal columns -> rows by the equal columns and their key --+-> pairs
      0_n, 1_n                                                                               2_n

Rows with the same values in the equal columns form a *group*. A task has all rows of its groups, in one store for each
side. Pairs are not stored. A leg without a source topic runs after the two legs that keep the sides. It reads the
groups that the micro-batch changed and emits the pairs that appeared, changed or disappeared (``run``).

The key of a pair consists of the equal columns and both keys. So each pair belongs to one task. A row that moves to
another group loses its pairs in one task and gains others in another task. These have other keys, so the order in which
the two become visible does not matter.

An outer join also emits each row that has no partner, with nulls for the other key. Semi, anti and existence joins emit
left rows, with a flag that says whether there is a partner.

Rejected: a store of pairs, which would have n times m rows that the two sides already determine; and a stored count of
partners for each row, which would stay wrong after any single mistake.
"""
