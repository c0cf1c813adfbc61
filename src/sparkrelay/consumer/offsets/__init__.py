"""Offsets: committing and asking for them, positions, and what to do when a log no longer has them.

May use ``group`` and ``base``.
"""
