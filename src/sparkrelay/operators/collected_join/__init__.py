"""Rows of a stream with what a collected DataFrame holds for them."""
