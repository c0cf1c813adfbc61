"""Random statements: each runs as a stream, cut at random and restored, beside Spark batch over the same rows.

    python -m tests.oracle.statements --count 200 --seed 7
    python -m tests.oracle.statements --count 1000 --seed 7 --minutes 30
    python -m tests.oracle.statements --seed 7 --first 42 --count 1        statement 42 alone

A statement is one text of Spark SQL, now and then with a method of DataFrames behind it. Both sides read the same text.
It ends **exact**, **wrong**, or **refused** with a reason: an error of ours, at build time, that says what to write
instead. Any other exception is a **fault**.

The rows of fifteen statements are made of one seed (:mod:`~tests.oracle.statements.rows`): streams ``clicks`` and
``views`` with a watermark and ``logs`` without one; tables ``users`` and ``items``, whose rows come, change and go; a
table ``codes`` and a global table ``world``, which are complete before anything else; and a DataFrame ``fixed``.
Streams are their rows, tables the last row of each key. Later rows close windows and outer joins; what they bring out
themselves is left out.

The grammar (:mod:`~tests.oracle.statements.grammar`), by the nodes of Catalyst's plans that it makes:

================================ ======================================================================================
node                             what is made
================================ ======================================================================================
Project, Filter, SubqueryAlias   ``SELECT`` of columns and expressions, ``WHERE``, subqueries in ``FROM``, pipe syntax
Generate, Expand                 ``LATERAL VIEW [OUTER] explode``, ``explode()`` in ``SELECT``, ``ROLLUP``, ``CUBE``,
                                 ``GROUPING SETS``
EventTimeWatermark               of ``clicks`` and ``views``; kept or lost by projections
Aggregate                        one to four of some thirty functions, ``DISTINCT`` (several), ``FILTER``, ``HAVING``,
                                 of columns, expressions, tumbling, sliding and session windows; of all rows
Window, Filter                   ``row_number``, ``rank`` and ``dense_rank``, at most n of each key; running sums
Join                             streams with a range of time (all kinds), stream and table, global table, two tables by
                                 key, by foreign key, by other columns, a DataFrame, cross joins
Deduplicate, Distinct            ``SELECT DISTINCT``, ``dropDuplicates``, ``dropDuplicatesWithinWatermark``
Union, Intersect, Except         ``UNION [ALL]``, ``INTERSECT``, ``EXCEPT`` of streams and of tables
WithCTE                          definitions that are read once, or twice
subqueries                       ``[NOT] IN``, ``[NOT] EXISTS``, scalar ones, with and without correlation; ``LATERAL``
Sort, GlobalLimit, Sample        ``ORDER BY``, ``LIMIT``, ``TABLESAMPLE``
rand()                           in a condition that always holds
================================ ======================================================================================

What SparkRelay documents to be otherwise than in Spark is said in the batch's text alone, between ``⟦`` and ``⟧``: a
stream looks into a table as of each row's own place, and rows whose only grouping key is null are left out.
"""
