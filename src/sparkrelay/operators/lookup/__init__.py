"""Joins of a stream with a table: each row looks up its key."""
