"""What the operators have in common that keep a table: rows by key, which change.

Rows carry the tombstone's mark, and a deleted row keeps the columns that it had. Where filters or groupings follow, a
change travels as two rows, as it was and as it is (``CHANGE``), through the same steps; one more step resolves what
remains of it (``changes``). Before a grouping of a table the repartition topic carries the mark as a column
(``Sink.changes``).

Further ways out of a table begin at rows that the stateful step leaves beside its journal (``TableRunner.kept``).
They belong to one attempt of one micro-batch and disappear with its commit. Refused: a cache in Spark, to be emptied
after each micro-batch. Running the stateful step once for each way, which would apply the micro-batch twice.
"""
