"""The demo: two instances share a stream, one is killed, and the result is exact.

Uses the product as a user would, and the command line nowhere.
"""
