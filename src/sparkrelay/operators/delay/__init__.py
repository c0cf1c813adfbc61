"""The ``grace`` of a lookup: rows are buffered until the watermark has passed their time plus the grace (KIP-923)."""
