"""What-if analysis of a live group: who would run what, why, and how long until it is warm.

Reads a group through the client; the algorithms are pure.
"""
