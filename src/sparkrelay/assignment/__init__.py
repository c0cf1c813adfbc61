"""assignment."""
