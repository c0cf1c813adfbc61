"""What the operators have in common that keep a store and emit a stream: rows that never change.

These are joins of streams, ``dropDuplicates``, ``transformWithState`` and rows that wait. Columns that nothing reads
after them are not kept; that is found on a plan of the leg's end over a stand-in for their rows. (The first of two
repartition topics before a join carries everything, since the other side's columns are not known then.) Tasks run one
after the other, and rows carry the message key as one more hidden column.

Such a step keeps what it read and not what it emitted, so several ways out share a repartition topic
(``topology.calls.branches``). Refused: emitted rows in the journal, as a table's changes are. A hot key's pairs leave
in pieces and would be kept whole.
"""
