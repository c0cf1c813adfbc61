"""Common parts of stateful operators that emit a stream, whose rows never change."""
