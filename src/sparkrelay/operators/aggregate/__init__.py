"""Aggregates by key, over the rows of a stream or of a table."""
