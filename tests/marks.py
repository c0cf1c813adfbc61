"""Which cases of a test `make test` tries, and which only `make test-all` does."""

import pytest


def marked(cases, always):
    """Return the cases of a test; those that are not always tried are marked `long`."""
    return [pytest.param(case, marks=() if case in always else pytest.mark.long) for case in cases]
