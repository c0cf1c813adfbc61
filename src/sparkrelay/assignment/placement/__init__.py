"""Placement of copies of tasks: balance, racks, tags, and moves in steps."""
