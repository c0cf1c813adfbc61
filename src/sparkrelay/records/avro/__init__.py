"""Avro to typed columns and back, by compiled loops that follow a program made of the schemas.

May use the loops and buffers of ``records``.
"""
