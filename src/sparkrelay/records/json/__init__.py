"""JSON to typed columns and back, in compiled loops where the records are plain.

May use the loops and buffers of ``records``.
"""
