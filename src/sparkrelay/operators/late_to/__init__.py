"""Rows that a grouping leaves out because their window is over.

With ``late_to=`` a leg of its own reads the same source, takes the same steps up to the grouping and passes on late
rows. Refused: leaving late rows in the grouping's journal. The grouping has only the columns that it groups by and
aggregates, so every row would have to carry all others.
"""
