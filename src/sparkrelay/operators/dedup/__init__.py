"""``dropDuplicates`` and ``dropDuplicatesWithinWatermark``: of rows that are equal in some columns only the first."""
