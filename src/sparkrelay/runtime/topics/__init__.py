"""The topics of an application: which there are, whose they are, what changed, and how long they keep their records.

May use ``contract``.
"""
