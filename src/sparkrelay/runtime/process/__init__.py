"""The processes of an instance (KIP-924's client): the driver's, or one per Spark executor; each has stream threads.

``context`` holds what they share. May use every room but ``instance`` and ``queries``.
"""
