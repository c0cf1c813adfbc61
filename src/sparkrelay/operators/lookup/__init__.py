"""Rows of a stream with what a table holds for them: the row of a key, or of a global table all rows in an array.

The step reads the store once for the distinct keys of its rows, under the batch's task epoch, so a former owner's
late step is refused. If the batch changed the table, its leg leaves every version beside its journal, provided the
batch has input for readers (``TableRunner.looked_up_by``). Rows and versions are ordered by their partitions' times
(``PARTITION_TIME``, noted by the fetch) in one sort of the changed keys. In a table with a history each row looks as
of its own time (``LookupRunner.time``), without that order.
"""
