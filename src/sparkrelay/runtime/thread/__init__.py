"""A stream thread: its membership of the group, its tasks, and what becomes of the instance when it dies.

May use every room but ``instance`` and ``process``.
"""
