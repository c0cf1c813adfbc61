import pytest

from sparkrelay.assignment import HighAvailabilityTaskAssignor, StickyTaskAssignor, TaskAssignor
from sparkrelay.errors import ConfigException
from sparkrelay.simulate import contestants as module
from sparkrelay.simulate.contestants import contestants


def test_ours_are_the_default(monkeypatch):
    found = contestants()
    assert [contestant.kind for contestant in found][:2] == [HighAvailabilityTaskAssignor, StickyTaskAssignor]
    assert [contestant.name for contestant in found][:2] == ["HighAvailability", "Sticky"]


def test_ours_that_are_not_installed_are_left_out(monkeypatch):
    monkeypatch.setattr(
        module,
        "OURS",
        ("sparkrelay.nowhere:Assignor", "sparkrelay.assignment:Nothing", "sparkrelay.assignment:StickyTaskAssignor"),
    )
    assert [contestant.name for contestant in contestants()] == ["Sticky"]


def test_one_that_was_asked_for_must_be_there():
    with pytest.raises(ConfigException, match=r"sparkrelay\.nowhere"):
        contestants(["sparkrelay.nowhere:Assignor"])


def test_each_simulation_has_an_assignor_of_its_own():
    (contestant,) = contestants([StickyTaskAssignor])
    assert contestant.make() is not contestant.make()


def test_none_at_all_is_refused():
    with pytest.raises(ConfigException, match="at least one"):
        contestants([])


def test_naming_one_twice_is_refused():
    with pytest.raises(ConfigException, match="twice"):
        contestants([StickyTaskAssignor, "sparkrelay.assignment:StickyTaskAssignor"])


def test_two_of_one_name_are_told_apart():
    other = type("StickyTaskAssignor", (StickyTaskAssignor,), {"__module__": "mine"})
    names = [contestant.name for contestant in contestants([StickyTaskAssignor, other])]
    assert names == ["sparkrelay.assignment.sticky:StickyTaskAssignor", "mine:StickyTaskAssignor"]


def test_a_class_called_assignor_keeps_a_name():
    kind = type("Assignor", (StickyTaskAssignor,), {})
    assert issubclass(kind, TaskAssignor)
    assert contestants([kind])[0].name == "Assignor"


def test_settings_are_for_those_that_have_them():
    index = "task.assignor.elasticsearch.balance.index"
    both = ["sparkrelay.assignors:ElasticsearchTaskAssignor", StickyTaskAssignor]
    assert [contestant.settings for contestant in contestants(both, {index: "0"})] == [{index: "0"}] * 2
    with pytest.raises(ConfigException, match="StickyTaskAssignor has no setting task.assignor.elasticsearch"):
        contestants([StickyTaskAssignor], {index: "0"})
    with pytest.raises(ConfigException, match="must be a number"):
        contestants(both, {index: "little"})
