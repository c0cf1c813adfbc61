"""Micro-batches: the thread that runs them, their size, their commit, their progress.

May use ``tasks`` and the rooms below it.
"""
