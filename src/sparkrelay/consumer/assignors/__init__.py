"""Client-side assignors of the classic protocol, as Kafka's own answer.

May use ``base``.
"""
