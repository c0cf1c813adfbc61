"""A stream thread: its membership of the group, its tasks, and the response when it dies.

May use every room but ``instance``, ``queries`` and ``process``.
"""
