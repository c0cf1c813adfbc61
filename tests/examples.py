"""How many examples of a property that takes seconds are tried: all in long runs, the first of them in `make test`.

They are the same in every run, so that the first ones were tried hundreds of times. `make test-all` tries all
(`HYPOTHESIS_PROFILE=whole`), and so does a search for new ones.
"""

import os

#: Profiles of tests/conftest.py that take their time.
PATIENT = {"whole", "search"}


def examples(all_of_them, part=3):
    """Return how many of a property's examples are tried: all, or the first part of so many."""
    return all_of_them if os.environ.get("HYPOTHESIS_PROFILE") in PATIENT else all_of_them // part
