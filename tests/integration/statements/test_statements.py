"""Random statements as streams, beside Spark batch: `python -m tests.oracle.statements`.

The first test has the same ones each time; the second has a new seed, which it prints and which each failure names.
`SPARKRELAY_RANDOM_SEED` repeats a run, `SPARKRELAY_RANDOM_STATEMENTS` makes it longer.
"""

import os
import random
from collections import Counter

import pytest
from tests.oracle.statements.checked import outcomes

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

SEED = os.environ.get("SPARKRELAY_RANDOM_SEED", str(random.SystemRandom().randrange(10**9)))
COUNT = int(os.environ.get("SPARKRELAY_RANDOM_STATEMENTS", "400"))


def test_some_statements_give_what_batch_gives(spark):
    found = list(outcomes(spark, "sample", 0, 8))
    assert [str(one) for one in found if one.failed] == []
    assert Counter(one.kind for one in found)["exact"] >= 4


@pytest.mark.long
def test_new_statements_give_what_batch_gives(spark):
    print(f"SPARKRELAY_RANDOM_SEED={SEED}")
    found = list(outcomes(spark, SEED, 0, COUNT))
    print(Counter(one.kind for one in found))
    assert [str(one) for one in found if one.failed] == []
