"""``transformWithState``: rows go, group by group, to a stateful processor of the user's.

All visible columns go in, and the grouping columns under hidden names, as they may be computed. The processor travels
in the step and is copied for each task and attempt, since a grown map calls the operator again. It runs within the
store's write transaction: its error fails the Spark job and the transaction. Its ``init`` declares the variables on
the driver (``plan``), where schemas as text can be parsed.

Timers of processing time use the driver's clock from the command (``TaskCommand.now_ms``), the same in every attempt.
The report has the next due time, and ``DueTimes`` runs a batch without records then; a new owner does not know it,
and looks. The store's watermark is the time that timers go by, so restores, standbys and journals need nothing new,
and the clock does not go back on another machine. Ended keys are removed by whoever comes next, so every due timer
must fire in its micro-batch.

A list has an entry with its bounds; adding moves the beginning past expired elements, so a list costs what is left of
it. An expiry is filed under the next full second, so a frequently written variable has one, and a task wakes once a
second at most; the value has the exact ms. Group and map key are preceded by a length of one byte; beyond 120 bytes
their SHA-256 stands for them after ``ff``, and the key is in the value. Names have 100 bytes at most. Variables never
end, so a changelog is not cut while there is one. Values and list bounds of all groups are read at once, entries on
demand; writes are encoded column by column at the end. Timers are single keys: as one record they would be rewritten
whole, and not fit into a changelog record from 131,000 on. No variable is pickled.
"""
