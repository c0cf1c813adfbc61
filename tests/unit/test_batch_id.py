"""The number that foreachBatch gives to its function."""

import copy
import json
import pickle

import pytest

from sparkrelay import BatchId

ID = BatchId(41, "0_3", "app/a/0_3")


def test_it_is_a_number_with_two_words():
    assert (ID, ID + 1, f"{ID}", json.dumps(ID), hash(ID)) == (41, 42, "41", "41", hash(41))
    assert (ID.task, ID.txn_app_id) == ("0_3", "app/a/0_3")


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda id_: pickle.loads(pickle.dumps(id_))])
def test_copies_are_the_same(again):
    found = again(ID)
    assert (type(found), found, found.task, found.txn_app_id) == (BatchId, ID, ID.task, ID.txn_app_id)


def test_it_does_not_change():
    with pytest.raises(AttributeError, match="'task' of a batch id cannot be set"):
        ID.task = "0_4"
    with pytest.raises(AttributeError, match="cannot be deleted"):
        del ID.task
