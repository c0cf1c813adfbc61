"""The processes of an instance (KIP-924's client): the driver, or one a Spark executor; each has stream threads.

``context`` is what the processes of an instance share. May use every room but ``instance``.
"""
