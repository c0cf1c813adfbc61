"""What must be so of topics that are tables' changelogs."""

import pytest

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.client.group_requests import OffsetAndMetadata
from sparkrelay.config import StreamsConfig
from sparkrelay.errors import IncompatibleTopologyException, StreamsException
from sparkrelay.runtime.contract.commit_notes import SOURCE_CHANGELOG, note_text
from sparkrelay.runtime.topics.configured_topology import as_configured
from sparkrelay.runtime.topics.layout import lay_out, require_noted_width
from sparkrelay.runtime.topics.source_changelogs import (
    require_no_other_changelogs,
    require_own_changelogs,
    require_rows_kept,
    topics_of_tables,
)
from sparkrelay.runtime.topics.topic_names import TopicNames
from sparkrelay.runtime.topics.topics import Topics
from sparkrelay.types import TaskId, TopicPartition

pytestmark = pytest.mark.usefixtures("spark")

NAMES = TopicNames("app")


def config(optimization="all", **settings):
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return StreamsConfig.from_dict(
        {"application.id": "app", "bootstrap.servers": "h:1", "topology.optimization": optimization, **given}
    )


def pipeline(optimization="all", **settings):
    builder = StreamsBuilder()
    people = builder.table("users", key=String("user"), value=Json("name string"), name="people")
    orders = builder.stream("orders", key=String("user"), value=Json("n int"))
    orders.join(people, "user").to("named")
    orders.groupBy("user").count(name="counts")
    return as_configured(builder.build(), config(optimization, **settings))


def test_settings_decide():
    assert pipeline("none").reused_topics == pipeline(auto_offset_reset="latest").reused_topics == {}
    assert pipeline("all").reused_topics == pipeline("reuse.ktable.source.topics").reused_topics == {"people": "users"}


def test_the_changelog_is_an_input_and_no_topic_of_ours():
    layout = lay_out(pipeline(), NAMES, {"users": 2, "orders": 2, "named": 1})
    assert set(layout.internal_topics) == {"app-counts-changelog"}
    shape = layout.tasks[TaskId(0, 1)]
    assert shape.changelogs == {
        "counts": TopicPartition("app-counts-changelog", 1),
        "people": TopicPartition("users", 1),
    }
    assert TopicPartition("users", 1) in shape.inputs
    assert shape.stores == ("counts", "people")


def test_tasks_that_the_topic_has_no_partition_for_have_nothing_to_restore():
    builder = StreamsBuilder()
    builder.table("users", key=String("user"), value=Json("name string"), name="people")
    builder.stream(["users", "more"], key=String("user"), value=Json("name string")).to("all")
    topology = as_configured(builder.build(), config())
    layout = lay_out(topology, NAMES, {"users": 1, "more": 2, "all": 1})
    assert [shape.changelogs for _, shape in sorted(layout.tasks.items())] == [
        {"people": TopicPartition("users", 0)},
        {},
    ]


def test_another_changelog_is_refused_with_what_deletes_it():
    require_no_other_changelogs(pipeline(), NAMES, {"users", "app-counts-changelog"})
    require_no_other_changelogs(pipeline("none"), NAMES, {"app-people-changelog"})
    with pytest.raises(IncompatibleTopologyException, match=r"kafka-topics.sh .*--topic app-people-changelog"):
        require_no_other_changelogs(pipeline(), NAMES, {"users", "app-people-changelog"})


def test_a_table_that_had_none_of_its_own_is_refused():
    plain = pipeline("none")
    assert (set(topics_of_tables(plain)), topics_of_tables(pipeline())) == ({"users"}, {})
    noted = {TopicPartition("users", 0): "", TopicPartition("users", 1): note_text(TaskId(0, 0), SOURCE_CHANGELOG)}
    with pytest.raises(IncompatibleTopologyException, match=r"reuse.ktable.source.topics.*sparkrelay reset"):
        require_own_changelogs(plain, NAMES, noted)
    with pytest.raises(IncompatibleTopologyException, match=r"has one now, because auto.offset.reset=latest"):
        require_own_changelogs(pipeline(auto_offset_reset="latest"), NAMES, noted)
    require_own_changelogs(plain, NAMES, {TopicPartition("users", 0): ""})
    require_own_changelogs(pipeline(), NAMES, noted)


def test_a_topic_that_got_partitions_between_two_runs_is_refused():
    """The table has no changelog of its own, whose partitions would be too few; and keys have moved."""
    layout = lay_out(pipeline(), NAMES, {"users": 3, "orders": 3, "named": 1})
    noted = {TopicPartition("users", 1): note_text(TaskId(0, 0), {**SOURCE_CHANGELOG, "tasks": 2})}
    with pytest.raises(StreamsException, match="source topic 'users' has 3 partitions now, not 2"):
        require_noted_width("app", layout, noted)
    for others in ({"tasks": 3}, {"tasks": "2"}, {}):
        require_noted_width("app", layout, {TopicPartition("users", 1): note_text(TaskId(0, 0), others)})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cleanup.policy": "compact", "retention.ms": "604800000"}, None),
        ({"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}, None),
        ({}, None),
        ({"cleanup.policy": "compact,delete", "retention.ms": "60000"}, "retention.ms=60000.*gone from the table"),
    ],
)
def test_what_a_topic_deletes_is_warned_of(settings, words):
    (*found,) = require_rows_kept(pipeline(), {"users": settings})
    assert len(found) == (words is not None)
    assert not found or "table 'people'" in found[0]


@pytest.mark.parametrize("bound", ["retention.ms", "retention.bytes"])
def test_a_topic_that_deletes_rows_unseen_is_refused(bound):
    settings = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", bound: "5000"}
    with pytest.raises(StreamsException, match=rf"{bound}=5000.*cleanup.policy=compact"):
        list(require_rows_kept(pipeline(), {"users": settings}))
    assert not list(require_rows_kept(pipeline("none"), {"users": settings}))


class Admin:
    """Knows where logs end, and what the group has committed."""

    def __init__(self):
        self.stable = []

    def list_offsets(self, wanted, *, read_committed, timeout):
        return dict.fromkeys(wanted, 100)

    def commits(self, group, partitions, *, stable):
        assert group == "app"
        self.stable.append(stable)
        return {p: OffsetAndMetadata(40, "") for p in partitions if p.partition == 0}


def test_copies_follow_the_topic_to_the_groups_offset():
    admin = Admin()
    topics = Topics(admin, pipeline(), NAMES, config())
    wanted = [TopicPartition("users", 0), TopicPartition("users", 1), TopicPartition("app-counts-changelog", 0)]
    assert topics.changelog_ends(wanted) == dict(zip(wanted, (40, 0, 100), strict=True))
    assert admin.stable == [False], "nobody waits for a transaction that is open"
    admin.stable.clear()
    plain = Topics(admin, pipeline("none"), NAMES, config("none"))
    assert set(plain.changelog_ends(wanted).values()) == {100}
    assert admin.stable == []
