"""Aggregates by session windows."""
