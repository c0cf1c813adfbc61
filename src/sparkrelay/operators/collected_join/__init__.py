"""Rows of a stream with what a collected DataFrame holds for them.

Without ``refresh=`` such a join is Catalyst's broadcast join: an exchange, so its plan is built anew for each
micro-batch and cannot be in a resident job. With it the driver collects the DataFrame to Arrow
(``runtime.spark.collected_frames``), and this step joins. An instance has each DataFrame once. A micro-batch that
joins first checks its age (``runtime.spark.refresh_schedule``, pure) and collects as a part of the micro-batch, so
cancelling one cancels both; other threads continue with the present rows. Only rows that differ (by a digest) make
new plans and end the resident job. They travel as a broadcast variable, read once a worker, and destroyed with the
next collection after no plan has it. A worker sorts the keys by their hashes: 40 bytes a row, and the key, beside the
rows.

Refused: collecting on a thread of its own, since rows could then be as old as ``refresh`` and the time since the last
micro-batch, unless an idle instance queried its source all the time. A ``LocalRelation`` in Catalyst's join: Spark
would broadcast it in each bulk micro-batch, and markers of resident jobs would have to pass a join.
"""
