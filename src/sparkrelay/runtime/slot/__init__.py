"""A process's claimed state directory: claiming, keeping and cleaning it, on the driver or on an executor.

May use ``spark``, ``worker`` and ``contract``.
"""
