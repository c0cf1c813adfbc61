"""Late rows of a grouping, as a stream."""
