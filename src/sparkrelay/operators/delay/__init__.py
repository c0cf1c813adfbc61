"""The ``grace`` of a lookup: rows wait until the watermark has passed their time by it (KIP-923).

Rows wait in a leg of their own and reach the lookup through a repartition topic; where the stream passes one anyway,
they wait before it, and nothing is written twice. The grace is not among the store's contents: a later pipeline may
change it.

Refused for now: a lookup after a stateful step in one leg. All code that walks a leg's steps would have to know
lookups in both places.
"""
