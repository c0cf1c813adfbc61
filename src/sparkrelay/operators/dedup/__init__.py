"""``dropDuplicates`` and ``dropDuplicatesWithinWatermark``."""
