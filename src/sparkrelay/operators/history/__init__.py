"""Tables that also know what rows were before.

``state.versions`` has the keys: a row as of some time is one seek, and so is the newest. A micro-batch puts its rows
among those of their keys and emits what became of the newest ones, so later filters, groups and joins get no row that
came late (KIP-914). A lookup reads as of each row's time, after the table's rows of the micro-batch are in. A join of
tables reads the newest rows and finds the former ones in the journal.

*Stream time* is the newest time of a row, without those beyond ``event.time.after.max.ms``: one wrong year would make
all later rows too late. Such a row is stored all the same. Lateness goes by the stream time before the micro-batch;
``RocksDBVersionedStore`` decides record by record, which loses rows of the second of several partitions in a
micro-batch. Beyond the history only the newest row is found, so it does not matter when others are removed.
Exception: lookups of a micro-batch also go by the stream time before it. Otherwise, with a history of an hour, one
that brings a day of a topic would hide rows from the stream's rows of that morning.

Readers in a later micro-batch (``grace=``, another key) pass a repartition topic, and in a backlog the table is read
first. So the stream time waits for the unread rows of those topics: by the writers' commits, as watermarks do
(``runtime.tasks.event_times``). A user's topic with more than the micro-batch takes leaves it in place. Of a
repartition topic that its own readers write nothing is known, and the stream time advances.

Removal follows the notes, rounded up to a multiple of the history, so a busy key has one for each, and goes by the
stream time before the micro-batch. A deletion that is its key's last entry goes too. Some thousand notes are followed
at once.

Refused: the source topic as changelog, which may be compacted. Time bounds before the keys, which spread a time's
valid row over many places. Removing at each write, which keeps deleted keys that never return.
"""
