"""Which kills `make test` tries, and which only `make chaos` does."""

import pytest


def marked(points, always):
    """Return the parameters of a test, of which those that are not to be tried always take long."""
    return [pytest.param(point, marks=() if point in always else pytest.mark.long) for point in points]
