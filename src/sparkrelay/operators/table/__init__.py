"""Common parts of the operators that keep a table."""
