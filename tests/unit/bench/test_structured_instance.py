from bench.structured_instance import records_of


def test_a_topic_that_a_query_reads_twice_counts_once():
    source = {
        "numInputRows": 20,
        "startOffset": {"bids": {"0": 5, "1": 0}},
        "endOffset": {"bids": {"0": 10, "1": 5}},
    }
    assert records_of(source) == 10


def test_the_first_batch_begins_at_nothing_and_markers_of_transactions_are_no_records():
    assert records_of({"numInputRows": 7, "startOffset": None, "endOffset": {"bids": {"0": 9}}}) == 7
