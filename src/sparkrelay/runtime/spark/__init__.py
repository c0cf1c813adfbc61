"""Spark as the runtime uses it: the session, the executors, jobs and what a failed one says.

May use ``worker`` and ``contract``.
"""
