"""``dropDuplicates`` and ``dropDuplicatesWithinWatermark``: of rows that are equal in some columns only the first.

With a watermark the store is one of windows that end (``keys``): a bucket's end, the key, and in the value when
exactly the key is forgotten. A key with the event time among its columns names its bucket; any other is looked up in
all buckets that are not over, which a seek for each finds (``StoreView.ends``). A bucket spans the delay, or a
second; later ones are four times as wide, and so on, so a clock that is years ahead adds some buckets and not
thousands. Keys that are over with their own micro-batch are not stored. Without a watermark keys have no bucket and
empty values. Unlike a join, the step passes descriptions of computed columns on to later stores.

Refused: one entry under the key alone with timers beside it, since restores and standbys remove from the front by a
marker and would need another way. Remembering a key for longer with each dropped row, which Spark does not, and which
writes as many records as there are duplicates.
"""
