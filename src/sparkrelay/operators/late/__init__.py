"""Rows that a grouping leaves out because their window is over."""
