"""The application's group: subscriptions, the leader's assignment, when to rebalance, the log of a rebalance.

May use ``topics`` and ``contract``. Which tasks a thread has is known to ``tasks``, not here.
"""
