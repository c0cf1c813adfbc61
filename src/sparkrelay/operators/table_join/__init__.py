"""Joins of tables by their key."""
