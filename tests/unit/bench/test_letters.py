"""The workload with bad records has the answer of the one without."""

import numpy as np
import pytest
from bench.letters import LetterWorkload
from bench.workload import PARTITIONS, Workload, kept


@pytest.mark.parametrize("records", [400, 4000, 40_000])
def test_one_record_of_a_hundred_is_bad_and_none_that_counts(records):
    workload = LetterWorkload(records=records, keys=40, passes=3, bad=True)
    bad = 0
    for _, _, actions in workload.columns():
        mask = workload._bad_ones(actions).to_numpy(zero_copy_only=False)
        assert not np.any(mask & kept(actions))
        bad += int(mask.sum())
    assert bad * workload.passes == workload.letters == records // PARTITIONS // 100 * PARTITIONS * 3
    assert workload.expected() == Workload(records=records, keys=40, passes=3).expected()


def test_only_the_run_with_bad_records_reads_them():
    assert LetterWorkload(bad=True).orders("in")["source"] == "in-with-bad"
    assert LetterWorkload().orders("in")["source"] == "in"
