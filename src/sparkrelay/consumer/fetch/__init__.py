"""Fetching records: requests, sessions with brokers (KIP-227), the buffer, the table of a poll.

May use ``offsets`` and ``base``.
"""
