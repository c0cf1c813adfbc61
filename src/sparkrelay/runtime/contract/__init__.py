"""What driver and workers agree on: commands, reports, specs, hidden columns, fault points.

Uses no other room.
"""
