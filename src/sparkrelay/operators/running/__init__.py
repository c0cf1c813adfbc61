"""Running aggregates: each row of a stream with totals of the rows before it, as ``F.sum("x").over(window)``.

With a watermark, rows wait until it has passed their event time, and then come in the order of event times. So the
result does not depend on how the stream was cut, and rows of one time are known together. Without one they come in the
order of arrival. The store has three kinds of entries::

    event time, 8 | 00 | µs, 2 | batch, 8 | index, 4   ->   a waiting row; ends with its time, as windows do
    key, in parts | 00                                 ->   what was added up of rows that no frame reaches any more
    key, in parts | 01 | number, 8                     ->   a row that a frame of a later row still reaches

The last two have no end. Frames that begin with the first row need the sum alone, ``rowsBetween(-9, 0)`` needs nine
rows of each key, and an interval needs its rows. Rows whose frame ends behind them wait for their successors.

A frame's value is combined from states of single rows (``state.aggregate``), by doubling: blocks of 1, 2, 4, ... rows,
and each frame is put together from a few of them. So every aggregate that can be merged works, and a hot key needs no
loop over its rows. In return, doubles are added in another order than Spark's.

Rejected: Spark's own window operator over the stored and the new rows. It needs a shuffle within each micro-batch,
and would compute the stored rows again.
"""
