"""A task on its way into service and out of it: initialize, restore, run, stand by.

May use ``spark`` (restoring is a Spark job), ``topics`` and ``contract``.
"""
