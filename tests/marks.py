"""Which cases of a test `make test` tries, and which only `make test-all` does."""

import pytest


def marked(cases, always):
    """Return the cases of a test; those that are not always tried are marked `long`."""
    return [pytest.param(case, marks=() if case in always else pytest.mark.long) for case in cases]


def first_of(cases):
    """Return the cases of a test, of which `make test` tries the first: seeds, of which each is as good as another."""
    first, *others = cases
    return [first, *(pytest.param(case, marks=pytest.mark.long) for case in others)]
