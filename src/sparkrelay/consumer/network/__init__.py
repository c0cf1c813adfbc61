"""The network thread: it drives the request managers of one consumer, and nothing of the application's runs on it.

May use every room but ``api``.
"""
