"""Joins of tables by a foreign key (KIP-213)."""
