"""Aggregates by key: of a stream's rows, or of a table's."""
