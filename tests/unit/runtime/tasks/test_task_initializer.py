"""Where tasks start, and when they are in service, without Spark and without a broker."""

from dataclasses import replace

import pytest
from tests.doubles.clock import Clock
from tests.doubles.state_updater import StateUpdater
from tests.doubles.tasks import task_of

from sparkrelay.client.admin import EARLIEST, LATEST
from sparkrelay.client.group_requests import GroupMetadata, OffsetAndMetadata
from sparkrelay.client.transactions import ProducerIdentity
from sparkrelay.config import StreamsConfig
from sparkrelay.errors import (
    AuthorizationException,
    RebalanceInProgressException,
    StreamsException,
    TimeoutException,
    UnknownTopicException,
)
from sparkrelay.runtime.contract.commands import LegReport, RestoreReport, StateReport
from sparkrelay.runtime.contract.commit_notes import (
    CHANGELOGS,
    SOURCE_CHANGELOG,
    note_parts,
    note_text,
    set_by_hand_note,
)
from sparkrelay.runtime.contract.owners import OWNER, Owner
from sparkrelay.runtime.tasks import task_initializer as module
from sparkrelay.runtime.tasks.batch_notes import BatchIntent, BatchNote
from sparkrelay.runtime.tasks.in_service import InService
from sparkrelay.runtime.tasks.task_initializer import TaskInitializer
from sparkrelay.runtime.tasks.task_state import TaskState
from sparkrelay.runtime.topics.layout import TaskLayout
from sparkrelay.topology.starts import topic_starts
from sparkrelay.types import TaskId, TopicPartition

ONE, OTHER = TaskId(0, 0), TaskId(0, 1)
A, B, INTERNAL = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("app-x-repartition", 0)
CHANGELOG = TopicPartition("app-counts-changelog", 0)
MEMBER = GroupMetadata("app", 3, "member")


class Broker:
    """Topics and transactions: every log ends at `end`; what is committed is the group's, or fails as the test says."""

    def __init__(self):
        self.missing = set()
        self.end, self.group, self.fails, self.opened, self.ended = 100, {}, [], [], []
        self.notes = {}
        self.topic_ids = {}
        #: The first offset of a record of some time or later.
        self.by_time = None
        #: How far logs are decided, one look after another, then to their ends.
        self.decided = []

    def ids(self, topics):
        return {topic: id_ for topic, id_ in self.topic_ids.items() if topic in topics}

    def committed(self, partitions):
        return {p: offset for p, offset in self.group.items() if p in partitions}

    def commits(self, partitions, *, stable=False):
        del stable
        return {p: OffsetAndMetadata(offset, self.notes.get(p, "")) for p, offset in self.committed(partitions).items()}

    def offsets(self, wanted, *, timeout, read_committed=True):
        assert timeout <= 10, "the thread has other tasks, and the group"
        if self.missing.intersection(p.topic for p in wanted):
            raise UnknownTopicException(f"{self.missing} did not exist within {timeout} s")
        end = self.decided.pop(0) if self.decided and read_committed and wanted else self.end
        return {p: {EARLIEST: 3, LATEST: end}.get(where, self.by_time) for p, where in wanted.items()}

    def init(self, names, *, transaction_timeout_ms):
        self.opened += names

    def set_offsets(self, offsets, notes, *, member):
        assert member == MEMBER
        if self.fails:
            raise self.fails.pop(0)
        self.ended.append(dict(offsets))
        self.group |= offsets
        self.notes |= notes


@pytest.fixture
def broker():
    return Broker()


@pytest.fixture
def service():
    service = InService()
    service.joined(MEMBER)
    return service


@pytest.fixture
def made(broker, service):
    def make(reset="latest", partitions=1):
        settings = {"application.id": "app", "bootstrap.servers": "h:1", "auto.offset.reset": reset}
        initializer = TaskInitializer(
            config=StreamsConfig.from_dict(settings),
            owner=Owner("me-0", 2),
            transactions=broker,
            application=broker,
            topics=broker,
            state_updater=StateUpdater(),
            in_service=service,
        )
        initializer.see(TaskLayout({}, {INTERNAL.topic: None}, {}, {"orders": partitions}))
        return initializer

    return make


def stateless(id_=ONE, *inputs):
    return task_of(id_=id_, inputs=inputs or (TopicPartition("orders", id_.partition),), changelogs={}, directory=None)


def test_stores_without_changelog_get_the_groups_offsets(made, broker):
    broker.group = {A: 40}
    initializer = made()
    initializer._state_updater.assign = (works := []).extend
    topics = {"state_topics": frozenset(["orders"])}
    unlogged = task_of(id_=ONE, inputs=(A, B, INTERNAL), changelogs={}, directory="/state/0_0", **topics)
    logged = task_of(id_=OTHER, inputs=(A,), changelogs={"counts": CHANGELOG}, directory="/state/0_1", **topics)
    initializer.initialize([unlogged, logged])
    assert [work.committed for work in works] == [{A: 40, B: None}, None]


def test_where_the_log_ends_is_committed_before_a_task_is_in_service(made, broker, service):
    """Whoever opens it next, before any batch is in, begins there too."""
    task = stateless()
    made().initialize([task])
    assert broker.group == {A: 100}
    assert broker.ended == [{A: 100}]
    assert note_parts(broker.notes[A]) == {OWNER: "me-0/2"}
    assert (task.position.offsets, task.state) == ({A: 100}, TaskState.RUNNING)
    assert service.look() == [task]
    broker.end = 150
    elsewhere = stateless()
    made().initialize([elsewhere])
    assert elsewhere.position.offsets == {A: 100}


def test_partitions_without_an_offset_are_committed_and_the_first_one_with_its_owner(made, broker):
    broker.group = {A: 40, TopicPartition("orders", 2): 50}
    task = stateless(ONE, A, B, TopicPartition("orders", 2), INTERNAL)
    made().initialize([task])
    assert broker.ended == [{A: 40, B: 100, INTERNAL: 3}], "what our own legs write starts where it begins"
    assert {p: note_parts(text) for p, text in broker.notes.items() if text} == {A: {OWNER: "me-0/2"}}


def test_where_tasks_start_at_the_beginning_that_is_committed(made, broker):
    """What expires before the first micro-batch is in would be passed over in silence."""
    task = stateless()
    made("earliest").initialize([task])
    assert (task.position.offsets, broker.ended) == ({A: 3}, [{A: 3}])


@pytest.mark.parametrize(
    ("note", "opened"),
    [
        (None, []),
        ("", ["app-0_0"]),
        (note_text(ONE, {OWNER: "none"}), []),
        (note_text(ONE, {OWNER: "me-0/2"}), []),
        (note_text(ONE, {OWNER: "me-0/3"}), ["app-me-0-0-2"]),
        (note_text(ONE, {OWNER: "other-1/2"}), ["app-other-1-0-0", "app-other-1-0-1"]),
        (note_text(ONE, {OWNER: "any thing/9"}), []),
        (note_text(ONE, {OWNER: "other-1/99999"}), []),
    ],
    ids=["new", "an earlier release", "let go", "itself", "itself, with more", "another", "nonsense", "too many"],
)
def test_what_a_former_owner_has_left_is_ended(made, broker, note, opened):
    if note is not None:
        broker.group, broker.notes = {A: 40}, {A: note}
    made().initialize([stateless()])
    assert broker.opened == opened


def test_ends_count_once_no_transaction_is_open(made, broker, counting, monkeypatch):
    """What a former owner committed just before it let go is visible a moment later."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    broker.decided = [90, 95]
    initializer = made()
    initializer._state_updater.assign = (works := []).extend
    initializer.initialize([counting])
    assert [work.ends for work in works] == [{CHANGELOG: 100}]


def test_a_transaction_of_an_unknown_writer_is_waited_for(made, broker, counting, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    broker.decided = [90] * 1000
    with pytest.raises(
        TimeoutException, match=r"a transaction is open in changelog app-counts-changelog-0, .* aborts? it"
    ):
        made().initialize([counting])
    assert counting.state is TaskState.CREATED


def test_who_lets_a_task_go_says_so(made, broker, service):
    initializer, task = made(), stateless()
    initializer.initialize([task])
    task.position.offsets[A] = 120
    initializer.release([task])
    assert broker.ended[-1] == {A: 120}
    assert note_parts(broker.notes[A]) == {OWNER: "none"}
    broker.fails = [TimeoutException("no answer")]
    initializer.release([task])
    service.expelled()
    initializer.release([task])
    assert len(broker.ended) == 2, "the next owner ends what may be left"


def test_who_is_in_no_group_serves_nothing(made, service):
    service.expelled()
    task = stateless()
    with pytest.raises(RebalanceInProgressException):
        made().initialize([task])
    assert task.state is TaskState.CREATED


def test_partitions_that_were_added_meanwhile_are_read_from_their_beginning(made, broker, service):
    """What is in them came while this instance ran: `latest` passes over what was there before."""
    initializer, task = made(), stateless(ONE, A, B)
    initializer.see(TaskLayout({}, {}, {}, {"orders": 2}))
    initializer.initialize([task])
    assert task.position.offsets == {A: 100, B: 3}
    assert broker.ended == [{A: 100, B: 3}], "the next owner would not know"


def starting(task, given):
    task.shape = replace(task.shape, starts=topic_starts(given, ("orders",), "here"))
    return task


@pytest.mark.parametrize(
    ("given", "by_time", "offset"),
    [
        ("earliest", None, 3),
        ("latest", None, 100),
        ("2026-11-28T12:00:00Z", 40, 40),
        ("1 hour ago", 40, 40),
        ("1 hour ago", -1, 100),
        ({0: 23}, None, 23),
        ({0: 3}, None, 3),
        ({0: 100}, None, 100),
    ],
)
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_source_says_where_it_is_read_first(made, broker, reset, given, by_time, offset):
    broker.by_time = by_time
    task = starting(stateless(), given)
    made(reset).initialize([task])
    assert (task.position.offsets, broker.group) == ({A: offset}, {A: offset})
    later = starting(stateless(), "earliest")
    made(reset).initialize([later])
    assert later.position.offsets == {A: offset}, "the group's offset decides from then on"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({0: 2}, "starting= says offset 2 of orders-0, which has the offsets 3 to 100"),
        ({0: 101}, "starting= says offset 101 of orders-0"),
        ({1: 23}, "starting= names partitions 1 of orders, which has 1"),
        ({0: 23, 1: 23}, "starting= names partitions 0, 1 of orders, which has 1"),
    ],
)
def test_a_place_that_the_topic_does_not_have_is_refused(made, broker, given, says):
    with pytest.raises(StreamsException, match=says):
        made().initialize([starting(stateless(), given)])
    assert broker.group == {}


def test_partitions_that_are_added_have_no_place_of_their_own(made):
    initializer, task = made(), starting(stateless(ONE, A, B), {0: 23})
    initializer.see(TaskLayout({}, {}, {}, {"orders": 2}))
    initializer.initialize([task])
    assert task.position.offsets == {A: 23, B: 3}


def test_each_partition_is_named(made):
    with pytest.raises(StreamsException, match="names partitions 1 of orders, which has 2: name each of them"):
        made(partitions=2).initialize([starting(stateless(), {1: 23})])


def test_a_state_that_has_seen_its_input_decides_the_offset(made, broker, service):
    task = task_of(
        id_=ONE, inputs=(A,), changelogs={"counts": CHANGELOG}, directory="/0_0", state_topics=frozenset({A.topic})
    )
    initializer = made()
    initializer.initialize([task])
    initializer.serve([(task, RestoreReport(ONE, {A: 70}, 5, {CHANGELOG: 0}, task_epoch=task.task_epoch))])
    assert (task.position.offsets, broker.ended) == ({A: 70}, [{A: 70}])


@pytest.fixture
def counting():
    topics = frozenset({A.topic})
    return task_of(id_=ONE, inputs=(A,), changelogs={"counts": CHANGELOG}, directory="/0_0", state_topics=topics)


@pytest.fixture
def serve(made, broker, counting):
    """`serve()`: serve a task whose state has seen 70 offsets of topic "old"."""

    def serve(**ids):
        initializer = made()
        initializer.initialize([counting])
        report = RestoreReport(ONE, {A: 70}, 5, {CHANGELOG: 0}, task_epoch=counting.task_epoch, topic_ids=ids)
        initializer.serve([(counting, report)])
        return counting.position

    return serve


@pytest.mark.parametrize(("known", "now"), [({"orders": "old"}, "old"), ({}, "old"), ({"orders": "old"}, None)])
def test_the_position_of_the_state_counts_where_the_topic_may_be_the_same(serve, broker, caplog, known, now):
    broker.topic_ids = {"orders": now} if now else {}
    position = serve(**known)
    assert (position.offsets, position.skipped, position.topic_ids) == ({A: 70}, {}, broker.topic_ids)
    assert "orders-0: the group has no offset, although the state has seen the records up to 70" in caplog.text


@pytest.fixture
def serve_restored(made, broker, counting):
    """`serve_restored(batch, end)`: serve a task whose restore found that last batch, in a changelog of that length."""

    def serve(batch, end):
        initializer = made()
        initializer.initialize([counting])
        positions = {A: 70} if batch else {}
        report = RestoreReport(ONE, positions, batch, {CHANGELOG: end}, task_epoch=counting.task_epoch)
        counting.restore_progressed(report.changelog_next)
        initializer.serve([(counting, report)])

    return serve


def noted(id_):
    return note_text(ONE, {CHANGELOGS: {"counts": id_}})


def test_a_state_that_was_lost_with_its_changelog_is_refused(serve_restored, broker, counting):
    """No local state is left that names the old changelog: the group's commit does."""
    broker.group, broker.topic_ids = {A: 70}, {CHANGELOG.topic: "new"}
    broker.notes = {A: noted("old")}
    with pytest.raises(StreamsException, match=r"task 0_0: the changelog of store 'counts' .* was deleted and created"):
        serve_restored(0, 0)
    assert counting.state is not TaskState.RUNNING


@pytest.mark.parametrize(
    ("batch", "end", "note"),
    [(0, 0, ""), (0, 0, noted("new")), (0, 0, set_by_hand_note("x", noted("old"))), (5, 9, noted("old"))],
    ids=["nothing is noted", "the same changelog", "an operator accepts it", "the changelog was copied"],
)
def test_an_empty_changelog_is_not_refused_where_nothing_says_that_it_had_state(
    serve_restored, broker, counting, batch, end, note
):
    broker.group, broker.topic_ids, broker.notes = {A: 70}, {CHANGELOG.topic: "new"}, {A: note}
    serve_restored(batch, end)
    assert counting.state is TaskState.RUNNING


@pytest.mark.parametrize("end", [0, 9])
def test_commits_name_the_changelogs_that_have_state(serve_restored, broker, counting, end):
    broker.group, broker.topic_ids = {A: 70}, {CHANGELOG.topic: "id"}
    serve_restored(5 if end else 0, end)
    owner = {OWNER: "me-0/2"}
    before = {A: {CHANGELOGS: {"counts": "id"}} | owner if end else owner}
    assert {p: note_parts(text) for p, text in counting.standing_notes().items()} == before
    counting.batch_begun({A: (70, 80)})
    assert {p: note_parts(text) for p, text in counting.commit_notes([]).items()} == before
    written = LegReport("leg", ONE, 1, state=StateReport("counts", 1))
    assert note_parts(counting.commit_notes([written])[A]) == {CHANGELOGS: {"counts": "id"}} | owner


@pytest.mark.parametrize("note", [None, "", set_by_hand_note("old"), '{"batch":1}'])
def test_a_source_topic_that_was_created_again_is_refused(serve, broker, note):
    """Kafka drops the group's offsets with the topic; one that is there says nothing unless an operator has set it."""
    broker.topic_ids = {"orders": "new"}
    if note is not None:
        broker.group, broker.notes = {A: 70}, {A: note}
    with pytest.raises(
        StreamsException, match="task 0_0: source topic 'orders' was deleted and created again"
    ) as error:
        serve(orders="old")
    assert "sparkrelay reset --application-id app" in str(error.value)
    assert "sparkrelay offsets set --application-id app --topic orders --to earliest" in str(error.value)


@pytest.mark.parametrize("offset", [0, 70, 90])
def test_an_operator_says_where_a_task_begins_in_a_topic_that_was_created_again(serve, broker, caplog, offset):
    broker.topic_ids = {"orders": "new"}
    broker.group, broker.notes = {A: offset}, {A: set_by_hand_note("new")}
    position = serve(orders="old")
    assert (position.offsets, position.skipped, position.topic_ids) == ({A: offset}, {A: 70}, {"orders": "new"})
    assert f"it is kept, and the task reads the new one from offset {offset}" in caplog.text


@pytest.mark.parametrize(
    ("offset", "note", "begins"),
    [(90, "same", 90), (90, None, 70), (90, "other", 70), (50, "same", 70)],
)
def test_an_offset_that_an_operator_sets_further_on_wins_over_the_state(serve, broker, offset, note, begins):
    broker.topic_ids = {"orders": "same"}
    broker.group, broker.notes = {A: offset}, {A: set_by_hand_note(note) if note else ""}
    assert serve(orders="same").offsets == {A: begins}


@pytest.mark.parametrize("reason", [RebalanceInProgressException("soon"), TimeoutException("no answer")])
def test_a_task_whose_first_offsets_are_not_in_is_not_served(made, broker, service, reason):
    broker.fails = [reason]
    task, initializer = stateless(), made()
    with pytest.raises(type(reason)):
        initializer.initialize([task])
    assert task.state is TaskState.CREATED
    # Opened again while the log has grown: it still begins where it did, unless another owner began elsewhere.
    broker.end = 150
    initializer.initialize([task])
    assert (task.position.offsets, broker.group) == ({A: 100}, {A: 100})
    assert service.look() == [task]


def test_first_offsets_that_are_refused_for_good_are_reported(made, broker, service):
    """Initializing the task again and again would not change it."""
    broker.fails = [AuthorizationException("not authorized for topic 'orders'")]
    task = stateless()
    with pytest.raises(AuthorizationException, match="orders"):
        made().initialize([task])
    assert task.state is not TaskState.RUNNING


def test_who_was_refused_begins_where_the_next_owner_began(made, broker):
    broker.fails = [RebalanceInProgressException("soon")]
    task, initializer = stateless(), made()
    with pytest.raises(RebalanceInProgressException):
        initializer.initialize([task])
    broker.group = {A: 120}
    initializer.initialize([task])
    assert task.position.offsets == {A: 120}


@pytest.mark.parametrize("meanwhile", ["missing", "there", "not asked for"])
def test_a_topic_that_a_broker_does_not_know_is_waited_for_but_not_for_ever(made, broker, monkeypatch, meanwhile):
    """default.api.timeout.ms, 60 s, is for how long; other troubles before that do not count."""
    clock, gone, task, initializer = Clock(), {"orders"}, stateless(), made("earliest")
    monkeypatch.setattr(module, "time", clock)
    broker.missing, task.hindered = gone, 70
    for clock.now in (1010.0, 1050.0):
        with pytest.raises(TimeoutException, match="did not exist"):
            initializer.initialize([task])
    if meanwhile == "there":
        broker.missing = set()
        initializer.initialize([task])
        task.fell_out()
        broker.missing, broker.group = gone, {}
    clock.now = 9000.0 if meanwhile == "not asked for" else 1070.0
    with pytest.raises(UnknownTopicException if meanwhile == "missing" else TimeoutException, match="did not exist"):
        initializer.initialize([task])


def test_a_changelog_that_was_deleted_is_named_as_one(made, broker):
    initializer = made("earliest")
    broker.missing = {"app-s-changelog"}
    changelog = TopicPartition("app-s-changelog", 0)
    with pytest.raises(TimeoutException) as refused:
        initializer.initialize([task_of(ONE, (A,), {"s": changelog}, "/state/0_0", frozenset())])
    assert "'app-s-changelog' is the changelog of store 's', which the application creates itself" in str(refused.value)
    assert "sparkrelay reset --application-id app" in str(refused.value)


def test_a_table_that_reuses_its_topic_is_restored_to_the_groups_offset_and_begins_there(made, broker, service):
    broker.group = {A: 40}
    initializer = made("earliest")
    initializer._state_updater.assign = (works := []).extend
    task = task_of(ONE, (A,), {"people": A}, "/state/0_0", frozenset([A.topic]))
    initializer.initialize([task])
    (work,) = works
    assert (work.ends, work.source_ends(), work.committed) == ({A: 40}, {"people": 40}, None)
    initializer.serve([(task, RestoreReport(ONE, {A: 40}, 0, {A: 40}))])
    assert task.position.offsets == {A: 40}
    assert broker.ended == [{A: 40}]
    assert note_parts(broker.notes[A]) == {**SOURCE_CHANGELOG, OWNER: "me-0/2"}, "from now on it is noted what they are"
    assert task.state is TaskState.RUNNING


def test_a_table_that_reuses_its_topic_begins_where_that_does(made, broker):
    initializer = made("earliest")
    initializer._state_updater.assign = (works := []).extend
    task = task_of(ONE, (A,), {"people": A}, "/state/0_0", frozenset([A.topic]))
    initializer.initialize([task])
    assert works[0].ends == {A: 0}
    initializer.serve([(task, RestoreReport(ONE, {}, 0, {}))])
    assert task.position.offsets == {A: 3}


def test_a_topic_that_ends_before_the_groups_offset_is_no_copy_of_what_was_read(made, broker):
    """It lost records: whoever reads on at the group's offset is refused."""
    broker.group = {A: 140}
    initializer = made("earliest")
    initializer._state_updater.assign = (works := []).extend
    task = task_of(ONE, (A,), {"people": A}, "/state/0_0", frozenset([A.topic]))
    initializer.initialize([task])
    assert works[0].ends == {A: 100}
    initializer.serve([(task, RestoreReport(ONE, {A: 100}, 0, {A: 100}))])
    assert task.position.offsets == {A: 140}


def test_a_commit_takes_a_copy_of_a_topic_to_where_the_batch_ended(made, broker):
    broker.group = {A: 40}
    initializer = made("earliest")
    initializer._state_updater.assign = [].extend
    task = task_of(ONE, (A,), {"people": A, "counts": CHANGELOG}, "/state/0_0", frozenset([A.topic]))
    initializer.initialize([task])
    initializer.serve([(task, RestoreReport(ONE, {A: 40}, 0, {A: 40, CHANGELOG: 100}))])
    task.restore_progressed({A: 40, CHANGELOG: 100})
    task.ends_listed({A: 70, CHANGELOG: 100})
    task.batch_begun({A: (40, 60)})
    assert task.command(ProducerIdentity("id", 1, 0), {}).changelog_next == {A: 40, CHANGELOG: 100}
    task.batch_committed()
    assert task.copy.offsets == {A: 60, CHANGELOG: 100}
    assert task.close_command().changelog_next == {A: 60, CHANGELOG: 100}


def giving(broker, offset, start, stop):
    """Return a task with foreachBatch, and have the group stand there with a batch that was begun."""
    note = BatchNote(ONE, 41, BatchIntent({A: (start, stop)}))
    broker.group, broker.notes = {A: offset}, {A: note_text(ONE, {"batch": note.as_json()})}
    return task_of(id_=ONE, inputs=(A,), changelogs={}, directory=None, foreach_batch=True)


def test_a_batch_that_was_begun_comes_first(made, broker, service):
    task = giving(broker, 40, 40, 60)
    made().initialize([task])
    assert service.look() == [task]
    assert task.next_ranges(task.position.offsets, {A: 100}, 1000, 0.0) == {A: (40, 60)}


def test_a_batch_that_was_begun_is_noted_still_where_its_input_is_a_changelog_too(made, broker):
    broker.group = {A: 40}
    note = BatchNote(ONE, 41, BatchIntent({A: (40, 60)})).as_json()
    broker.notes = {A: note_text(ONE, {"batch": note, "event_times": {"rows": [7, 7]}})}
    initializer = made("earliest")
    initializer._state_updater.assign = [].extend
    task = task_of(ONE, (A,), {"people": A}, "/state/0_0", frozenset([A.topic]), foreach_batch=True)
    initializer.initialize([task])
    initializer.serve([(task, RestoreReport(ONE, {A: 40}, 40, {A: 40}))])
    said = {OWNER: "me-0/2", "batch": note, "event_times": {"rows": [7, 7]}}
    assert note_parts(broker.notes[A]) == {**SOURCE_CHANGELOG, **said}


@pytest.mark.parametrize("moved", [False, True])
def test_what_a_lost_batch_would_have_said_of_event_times_is_not_said(made, broker, moved):
    """Who reads the topic would not wait for rows that are still to be written, and close their windows."""
    broker.group, broker.notes = {A: 40}, {A: note_text(ONE, {"event_times": {"rows": [7, 7]}})}
    initializer = made("earliest")
    initializer._state_updater.assign = [].extend

    def opened(task):
        initializer.initialize([task])
        initializer.serve([(task, RestoreReport(ONE, {A: 40}, 0, {A: 40}))])
        return task

    def new():
        settings = {"timed_sinks": frozenset(["rows"])}
        return task_of(ONE, (A,), {"people": A}, "/state/0_0", frozenset([A.topic]), **settings)

    task = opened(new())
    task.ends_listed({A: 60})
    task.batch_begun({A: (40, 60)})
    said = task.commit_notes([LegReport("leg", ONE, 1, newest_out={"rows": 90})])
    assert note_parts(said[A])["event_times"] == {"rows": [90, 90]}
    if not moved:
        # It took longer than its transaction may, and the broker has aborted that.
        task.fell_out()
    opened(new() if moved else task)
    assert note_parts(broker.notes[A]) == {**SOURCE_CHANGELOG, OWNER: "me-0/2", "event_times": {"rows": [7, 7]}}


@pytest.mark.parametrize(("newest_out", "says"), [({}, [7, 7]), ({"rows": 5}, [7, 7]), ({"rows": 9}, [9, 9])])
def test_a_new_owner_says_what_those_before_it_have_written(made, broker, newest_out, says):
    """Whoever has not read that yet would else leave windows open that its times are to close."""
    broker.group, broker.notes = {A: 40}, {A: note_text(ONE, {"event_times": {"rows": [7, 7], "other": [1, 1]}})}
    initializer = made("earliest")
    # A topic in front of the other one has got a partition since.
    for inputs in ((A,), (INTERNAL, A)):
        task = task_of(ONE, inputs, {}, None, timed_sinks=frozenset(["rows"]))
        initializer.initialize([task])
        task.ends_listed({A: 60})
        task.batch_begun({A: (40, 60)})
        said = task.commit_notes([LegReport("leg", ONE, 1, newest_out=newest_out)])
        assert note_parts(said[inputs[0]])["event_times"] == {"rows": says}


def test_a_task_that_is_opened_again_behind_a_batch_intends_none(made, broker):
    """The commit of its next batch had no answer, say, and what it notes about its table is committed anew."""
    broker.group = {A: 40}
    initializer = made("earliest")
    initializer._state_updater.assign = [].extend
    task = task_of(ONE, (A,), {"people": A}, "/state/0_0", frozenset([A.topic]), foreach_batch=True)
    initializer.initialize([task])
    initializer.serve([(task, RestoreReport(ONE, {A: 40}, 0, {A: 40}))])
    task.ends_listed({A: 60})
    task.batch_begun({A: (40, 60)})
    task.intent_notes(0)
    task.batch_intended()
    broker.group, broker.notes = {A: 60}, task.commit_notes([])
    task.fell_out()
    initializer.initialize([task])
    initializer.serve([(task, RestoreReport(ONE, {A: 60}, 0, {A: 60}))])
    assert task.state is TaskState.RUNNING
    assert note_parts(broker.notes[A])["batch"] == {"task": "0_0", "number": task.position.batch}


@pytest.mark.parametrize(("start", "stop", "there"), [(1, 60, "3 to 99"), (40, 101, "3 to 99")])
def test_a_batch_whose_records_are_gone_is_refused(made, broker, service, start, stop, there):
    """By retention, or with the topic."""
    task = giving(broker, start, start, stop)
    words = rf"task 0_0: batch 41 was begun with the records {start} to {stop - 1} of orders-0, .* from {there}"
    with pytest.raises(StreamsException, match=words):
        made().initialize([task])
    assert task.state is not TaskState.RUNNING


def test_a_batch_that_is_given_up_is_said(made, broker, service, caplog):
    task = giving(broker, 50, 40, 60)
    made().initialize([task])
    assert task.next_ranges(task.position.offsets, {A: 100}, 1000, 0.0) == {A: (50, 100)}
    assert "task 0_0: batch 41 was begun and is not run again" in caplog.text


def test_who_lets_a_task_go_names_the_changelogs_of_its_first_batch_too(serve_restored, broker, counting, made):
    """They are found again by what is noted, where no local state is left."""
    broker.group, broker.topic_ids = {A: 70}, {CHANGELOG.topic: "id"}
    serve_restored(0, 0)
    counting.ends_listed({A: 80, CHANGELOG: 0})
    counting.batch_begun({A: (70, 80)})
    counting.batch_committed([StateReport("counts", 1)])
    made().release([counting])
    assert note_parts(broker.notes[A]) == {OWNER: "none", CHANGELOGS: {"counts": "id"}}
