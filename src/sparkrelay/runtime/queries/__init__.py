"""Interactive queries: what an instance's stores hold, asked from outside of the pipeline (KIP-67, KIP-535).

May use the rooms below; only the instance uses this one.
"""
