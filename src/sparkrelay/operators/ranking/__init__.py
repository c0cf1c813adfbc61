"""The first rows of each key in an order.

*Of a stream* (``first_rows``): each place is a row of the store. A micro-batch reads every place of its keys, merges,
and writes the changed places, so undo, changelogs, filters and ending windows need nothing new. It costs a read a
place, hence the bound; all rows in one value would be one read and be rewritten whole.

*Of a table* (``tables``): a row that was not among the first may have to come in, so all rows of a key are kept,
under key and digest with a count, within the store's transaction. Refused: keys in the order of the rows. Every type
that Spark orders would need sortable bytes, and deletions at the front a scan all the same.

*By* ``rank()`` (``windows``): as many rows are kept as are equal, so places do not do; only for windows that end, of
a stream. Refused: a table of them with one more column for what makes equal rows different, which no batch has, and
whose rows would change their keys with each other's.

*Beaten rows* (``beaten_rows``): a row beaten by enough others of its micro-batch and task need not pass the
repartition topic. With a later watermark the newest row of each key still does, so that its clock is the same. Only
where nobody else reads the topic, no step drops a part of a key's rows, and no watermark goes by another clock. Never
across tasks, whose transactions commit separately. Nexmark's q7 writes one row in 200 by it.
"""
