"""From the legs of a topology to prepared DataFrames.

May use ``spark``, ``worker``, ``topics`` and ``contract``; runs no job and knows no task.
"""
