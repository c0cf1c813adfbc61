"""How damage to local state is found, by whoever comes upon it first, and who acts.

====================================================  =================================  ==========================
damage                                                found by                           when
====================================================  =================================  ==========================
a row that differs from what was written              its checksum (``lmdb.table``)      the row is read, or scrubbed
rows that are missing or too many                     ``lmdb.running_sum``               a scrub has passed all rows
pages from before a power loss                        ``cleanliness``                    the store is opened
a page or file whose use kills the process            ``faults``                         the store is opened again
an error of LMDB's own                                ``lmdb.environment``               at once
====================================================  =================================  ==========================

All raise ``StoreCorruptedException``. ``runtime.tasks.state_updater`` has the copy set aside (``home.removal``) and
rebuilt from the changelog while it restores; ``runtime.batch.batch_runner`` gives up a micro-batch's task for that.
"""
