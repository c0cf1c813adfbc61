"""A process's claimed state directory: claiming, holding and cleaning it, on the driver or on an executor.

May use ``spark``, ``worker`` and ``contract``.
"""
