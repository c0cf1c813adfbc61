"""The application's group: what members say, the leader's assignment, when to rebalance, the log of a rebalance.

May use ``topics`` and ``contract``. Who holds a task at this moment is known to ``tasks``, not here.
"""
