"""Joins of tables by a foreign key (KIP-213).

::

    left table -> topic by foreign key -> its rows by foreign key ---+
                                                right table ---------+-> topic by the left key -> the joined table
      0_n                                    1_n                                                   0_n

1. *There.* The left table's changes go to the right table's tasks, under foreign key and key. The old row comes
   before the new one, so the row stays where both name one foreign key. A null foreign key goes where the task's
   number points, names nothing there, and is answered like others.
2. *Answers* (``run``). For each left row that the micro-batch wrote, and each that a changed right row concerns
   (``keys_beginning``), one answer goes back: the joined row, ``NO_ROW``, or ``OLD`` (the row no longer points here).
   Unchanged rows are answered too: an earlier answer may have come too early to count.
3. *Back* (``outdated_answers``). An answer with or without a row counts if its left columns equal the present left row
   byte by byte; ``OLD`` counts if there is no left row. Any other is of an older row, and another answer will follow.

Why that is enough: each change of a left row is answered by the task that its foreign key names, after it is visible
there. So the last one is answered with the right row of that time, and each later change of that right row by the
same task, in the same partition, in order. Answers of other tasks are of former rows, or of equal ones that the same
task answered before. So a tombstone from elsewhere never beats the present row, in any order, and a moving row is not
deleted in between. Kafka Streams compares digests of the left value and sends instructions; here whole rows travel.

Refused: a version number for each left row, which would be kept for deleted keys for ever, or an answer after the
deletion revives the row. Sending only the right row back and joining it with the left store: a new foreign key would
first show nothing, then the right row.
"""
