"""The runtime's use of Spark: session, executors, jobs and their errors.

May import ``worker`` and ``contract``.
"""
