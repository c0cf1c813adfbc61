"""Rankings: the first rows of each key in an order."""
