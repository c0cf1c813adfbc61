"""Aggregates by key: of a stream's rows, or of a table's.

Results are Spark's. ``count`` skips nulls and ``count(*)`` does not; the others skip nulls and are null where nothing
is left. Whole numbers add up to bigint, decimals to ten more digits, 38 at most; beyond that is an error that names
the group, as under ANSI. Only a micro-batch's total counts: additions and removals are totals of 60 digits
(``WideSum``), and the group's final value is checked. Otherwise a row that changes from 6e18 to 5e18 would be refused
for a value that is never stored. NaN is greater than any number, which Arrow's kernels do not know. ``avg`` is a
double, of decimals a decimal, rounded as Spark rounds it. Variances are merged by Chan's formulas.

Fields of a group's state, in the order of the aggregates (bytes: ``state.layout``):

- ``count``: int64. ``sum``: int64, float64 or a decimal; where rows are taken out also the count.
- ``avg``: sum as float64 or a decimal, count as int64. ``min``, ``max``, ``bit_...``, ``product``: the value.
- Variances, ``skewness``, ``kurtosis``: count as int64; mean and second to at most fourth central moments as float64.
- ``covar_...``, ``regr_sxy``: count as int64; both means and the co-moment as float64. ``corr`` and other
  ``regr_...``: also both second moments.
- ``first``, ``last``: the value; unless nulls are skipped also a boolean that is there once a row was.
- ``max_by``, ``min_by``: the value, and what it was picked by.
- ``approx_count_distinct``: the registers, as bytes. Lists, sets, modes, percentiles: how many values, as int64.

Each kind is a class (``state.aggregate.base``): it requests its part of the one grouping that Arrow does for all,
makes state columns, merges states (``combine``), and some take rows out again (``subtract``). Kinds without a kernel
in Arrow get each row's group and continue in numpy.

Distinct and collected values are keys of their own beside the state (``distinct_values``, ``collected_values``).
Where updates are emitted, all values of a micro-batch's groups are read for the results before and after; with final
rows only, none until the window ends. Counts serve where order does not matter (``collect_set``, ``mode``,
``percentile``, ``listagg`` ordered by its texts) and for DISTINCT over a table's rows; a count of zero is deleted, so
values can be taken out. Lists get one chunk a group and micro-batch; existing chunks are not rewritten. A list or set
above ``max.request.size`` is refused, with its group, before anything is written. Lengths and counts that do not add
up are damage, not sizes to allocate. A chunk has about 128 KiB at most: how many values (4 bytes, little endian), the
length of each (4 bytes), their bytes. Numbers in keys are big endian. The digest of a long group key is BLAKE2b of 16
bytes, so no bound of a range is a long key. A value is written as a key of its column would be, in a chunk as a row
of a table.

Refused:

- Distinct values as a set in the group's state: read, written and logged whole for each new one.
- A list in the group's state: written, journalled and logged whole for each row, which is quadratic.
- Collected values of session windows: growing changes a session's key, so all its values would move.
- Lists of a table's groups: a removed row is somewhere in the middle of a chunk.
- ``approx_percentile`` by a sketch (KLL, GK): the counted values exist for ``percentile`` and have no error. They
  take room for each distinct value.
- Apache DataSketches for ``approx_count_distinct``: Python calls for each group and value, and a C++ deserialiser
  that would read a changelog's bytes. Registers and a maximum suffice, and numpy has these.
"""
