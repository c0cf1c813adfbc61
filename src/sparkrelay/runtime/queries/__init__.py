"""Interactive queries of an instance's stores from outside the pipeline (KIP-67, KIP-535).

May import the packages below; only the instance imports this one.
"""
