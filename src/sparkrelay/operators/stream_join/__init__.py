"""``join`` of two streams within a time: every pair of rows with equal keys, found by the row that comes second."""
