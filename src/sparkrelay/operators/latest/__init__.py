"""Tables of the newest row of each key."""
