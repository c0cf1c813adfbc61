"""The ``grace`` of a lookup: rows wait until the watermark has passed their time by it (KIP-923)."""
