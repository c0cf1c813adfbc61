"""``join`` of two streams within a time: every pair of rows with equal keys, found by the row that comes second.

Both sides are legs of one store and changelog, in their own waves (``assign_waves``); several legs of a union
likewise, and a topic joined with itself is read by two. A leg's records end with a marker; the next leg's sequence
follows from the count of changed keys (``next_in_changelog``).

*Time.* Each source topic has a watermark; the least counts of those that are behind, have rows in the batch, or were
not silent for ``join.idle.ms``. The last leg with input advances it (``JoinStreams.later``). Kafka Streams uses the
newest time of both sides and the grace alone; here one side often passes a repartition topic and is a batch behind.
So the other waits, but not for ever: a task may lack rows of one side. A side with rows unread upstream for that long
is behind, not silent (``EventTimeLimits.unread_since``, ``Upstream``). Without that, Nexmark's q7 as a join (10 M
events, final windows after 67 s) had all pairs late.

*Store* (``state.join_rows``). A *bucket* spans the reach of a row, at least a second, so a probe is a range scan in
two or three buckets, and what is over is at the front. A note stands for a row that must go out alone. It has the
key's columns only: with the whole row, outer joins wrote each waiting row twice. A hot key may find, delete or
outlive millions of rows. So the probe keeps keys, and values up to 64 MB; the rest is read in pieces, in transactions
that check that the batch was not undone (``StoreAfter``), and pairs leave 64,000 at a time. Left rows of a semi or
anti join ask only whether a right row exists (``any_in``). Changes are point writes with old values in the journal.

Refused: LMDB's sorted duplicates as an index beside rows. It saves 20 bytes a row and probes faster, but needs its
own kinds of journal and changelog records.
"""
