"""Rows of a stream with what a table holds for them."""
