"""Membership of a group under both protocols: the classic one, and KIP-848.

May use ``base``.
"""
