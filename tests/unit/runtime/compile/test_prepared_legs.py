"""Which legs run in a batch, in which waves, and who is to report, without Spark."""

from types import SimpleNamespace

import pytest

from sparkrelay.errors import SerializationException, TopologyException
from sparkrelay.records.framing import UNKNOWN_SECONDS, WriterSchemas
from sparkrelay.runtime.compile.prepared_leg import PreparedLeg
from sparkrelay.runtime.compile.prepared_legs import PreparedLegs
from sparkrelay.types import TaskId


def made_leg(name, topic, sink=None, subtopology=0):
    sink = None if sink is None else SimpleNamespace(topic=sink, internal=False)
    none = {
        "aggregation": None,
        "emitting": None,
        "store": None,
        "lookups": (),
        "filters_table": False,
        "changes_of": None,
        "late_for": None,
        "reads_stores": frozenset(),
        "collected": (),
        "source": SimpleNamespace(key=None, value=None, timestamp=None),
    }
    return SimpleNamespace(id=name, subtopology=subtopology, topic=topic, sink=sink, goes_on=False, **none)


class Frame(list):
    def union(self, other):
        return Frame(self + other)


class Compiler:
    """Builds a leg as a number that counts; which legs are rebuilt is the test's to say."""

    writes_dead_letters = False

    def __init__(self):
        self.rebuild, self.built = set(), 0
        self.renewed, self.looked_at = set(), None

    def renew(self, legs, collect):
        self.looked_at = [leg.id for leg in legs]
        return frozenset(self.renewed)

    def source_topics(self, leg):
        return frozenset({leg.topic})

    def build(self, leg):
        self.built += 1
        rebuild = "time" if leg.id in self.rebuild else None
        return PreparedLeg(leg, Frame([(leg.id, self.built)]), rebuild, None, 1)


@pytest.fixture
def compiler():
    return Compiler()


def plans_of(compiler, *legs):
    return PreparedLegs(compiler, legs)


def test_a_report_is_awaited_from_each_leg_for_each_task_with_input(compiler):
    plans = plans_of(compiler, made_leg("a", "orders"), made_leg("b", "shops"), made_leg("c", "users", subtopology=1))
    (wave,) = plans.waves({0, 1}, {"orders", "shops", "users"})
    inputs = {TaskId(0, 0): {"orders"}, TaskId(0, 1): {"orders", "shops"}, TaskId(1, 0): {"users"}}
    assert wave.reports(inputs) == {
        ("a", TaskId(0, 0)),
        ("a", TaskId(0, 1)),
        ("b", TaskId(0, 1)),
        ("c", TaskId(1, 0)),
    }


def test_one_leg_speaks_for_what_is_skipped_of_a_topic(compiler):
    compiler.rebuild = {"by-time"}
    legs = [made_leg(name, "orders") for name in ("by-time", "a", "b")]
    plans = plans_of(compiler, *legs, made_leg("c", "shops"), made_leg("d", "orders", subtopology=1))
    running = {"by-time", "a", "b", "c", "d"}
    assert plans.skips_of(running) == {("a", "orders"), ("c", "shops"), ("d", "orders")}
    assert plans.skips_of({"by-time", "a"}) == {("a", "orders")}
    assert plans_of(compiler, *legs[:1]).skips_of(running) == {("by-time", "orders")}


def test_which_leg_speaks_may_depend_on_the_time(compiler):
    compiler.rebuild = {"mornings", "evenings"}
    plans = plans_of(compiler, *(made_leg(name, "orders") for name in ("mornings", "evenings")))
    assert plans.skips_of({"mornings"}) == {("mornings", "orders")}
    assert plans.skips_of({"evenings"}) == {("evenings", "orders")}
    assert plans.skips_of({"mornings", "evenings"}) == {("mornings", "orders")}
    assert plans.skips_of(set()) == set()


def test_all_that_may_write_dead_letters_run_one_after_the_other(compiler):
    compiler.rebuild, compiler.writes_dead_letters = {"mornings", "evenings"}, True
    plans = plans_of(compiler, *(made_leg(name, "orders") for name in ("mornings", "evenings")))
    assert [list(wave.legs) for wave in plans.waves({0}, {"orders"})] == [["mornings"], ["evenings"]]


def test_legs_of_a_task_that_write_dead_letters_run_one_after_the_other(compiler):
    legs = [made_leg("a", "orders"), made_leg("b", "shops"), made_leg("c", "orders"), made_leg("d", "users", None, 1)]
    everything = {"orders", "shops", "users"}

    def waves():
        return [sorted(wave.legs) for wave in plans_of(compiler, *legs).waves({0, 1}, everything)]

    assert waves() == [["a", "b", "c", "d"]]
    compiler.writes_dead_letters = True
    assert waves() == [["a", "c", "d"], ["b"]]


def test_legs_that_write_one_topic_run_one_after_the_other(compiler):
    plans = plans_of(compiler, made_leg("a", "orders", "out"), made_leg("b", "orders", "out"))
    assert [list(wave.legs) for wave in plans.waves({0}, {"orders"})] == [["a"], ["b"]]
    assert plans.waves({0}, {"orders"})[0].frame is plans.waves({0}, {"orders"})[0].frame, "built once"


def test_a_leg_that_depends_on_the_time_is_built_for_each_micro_batch(compiler):
    compiler.rebuild.add("a")
    plans = plans_of(compiler, made_leg("a", "orders"), made_leg("b", "shops"))
    frames = [plans.waves({0}, {"orders", "shops"})[0].frame for _ in range(2)]
    assert frames == [[("a", 3), ("b", 2)], [("a", 4), ("b", 2)]]


def test_a_leg_that_cannot_be_built_to_stay_runs_as_before(compiler):
    def build_resident(plan):
        if plan.leg.id == "a":
            raise TopologyException("pipeline.py:3: removes a column")
        return "it has a Python function"

    compiler.build_resident = build_resident
    found = plans_of(compiler, made_leg("a", "orders"), made_leg("b", "shops")).resident()
    assert found.frame is None
    assert found.refused == {
        "a": "it cannot be built so: pipeline.py:3: removes a column",
        "b": "it has a Python function",
    }


def test_it_says_which_way_small_micro_batches_take(compiler):
    legs = made_leg("a", "orders"), made_leg("b", "shops")
    compiler.build_resident = lambda plan: plan if plan.leg.id == "a" else "f() is a Python function"
    assert plans_of(compiler, *legs).describe().splitlines() == [
        "Small micro-batches:",
        "   a: pass through one resident Spark job, if 1 slots are free",
        "   b: a Spark job each, because f() is a Python function",
    ]


def test_a_leg_runs_behind_those_whose_stores_it_reads(compiler):
    keeper, reader = made_leg("keeper", "users"), made_leg("reader", "clicks")
    keeper.store, reader.reads_stores = "table", frozenset({"table"})
    other = made_leg("other", "clicks")
    plans = plans_of(compiler, keeper, reader, other)
    assert [list(wave.legs) for wave in plans.waves({0}, {"users", "clicks"})] == [["keeper", "other"], ["reader"]]
    assert [list(wave.legs) for wave in plans.waves({0}, {"clicks"})] == [["other"], ["reader"]]


def test_the_legs_of_one_join_run_one_behind_the_other(compiler):
    left, right = made_leg("left", "clicks", "out"), made_leg("right", "views", "other")
    left.store = right.store = "join"
    plans = plans_of(compiler, left, right)
    assert [list(wave.legs) for wave in plans.waves({0}, {"clicks", "views"})] == [["left"], ["right"]]


def test_legs_whose_dataframes_have_other_rows_are_built_again(compiler):
    legs = made_leg("a", "orders"), made_leg("b", "orders"), made_leg("c", "users", subtopology=1)
    for leg in legs[:1] + legs[2:]:
        leg.collected = (object(),)
    compiler.build_resident = lambda plan: plan
    plans = plans_of(compiler, *legs)
    before, stays = plans.waves({0}, {"orders"})[0].frame, plans.resident()
    assert not plans.renew({0}, None)
    assert compiler.looked_at == ["a"], "what has no work in the micro-batch is left alone"
    assert plans.waves({0}, {"orders"})[0].frame is before
    assert plans.resident() is stays
    compiler.renewed = {"a"}
    assert plans.renew({0}, None)
    assert plans.waves({0}, {"orders"})[0].frame == [("a", 4), ("b", 2)]
    assert plans.resident().frame == [("a", 4), ("b", 2), ("c", 3)]


def test_a_leg_that_could_not_be_built_again_is_before_the_next_micro_batch(compiler):
    leg = made_leg("a", "orders")
    leg.collected = (object(),)
    plans = plans_of(compiler, leg)
    compiler.renewed, build = {"a"}, compiler.build
    compiler.build = lambda leg: (_ for _ in ()).throw(TopologyException("no"))
    with pytest.raises(TopologyException):
        plans.renew({0}, None)
    compiler.build, compiler.renewed = build, set()
    assert plans.renew({0}, None)
    assert plans.waves({0}, {"orders"})[0].frame == [("a", 2)]


def test_without_dataframes_nothing_is_asked(compiler):
    assert not plans_of(compiler, made_leg("a", "orders")).renew({0}, None)
    assert compiler.looked_at is None


def test_a_leg_whose_records_have_new_schemas_is_built_again(compiler):
    legs = made_leg("a", "orders"), made_leg("b", "users")
    asked = []
    writers = WriterSchemas({1: "one"}, asked.append)
    legs[0].source.value = SimpleNamespace(writers=writers)
    plans = plans_of(compiler, *legs)
    others = plans_of(compiler, *legs)
    with pytest.raises(SerializationException, match="the schemas 1 cannot be fetched"):
        plans.learn([1])
    assert not plans.renew({0}, None)
    plans.learn([1, 7])
    assert asked == [7]
    assert plans.renew({0}, None)
    assert not plans.renew({0}, None)
    assert plans.waves({0}, {"orders"})[0].frame == [("a", 5)]
    others.learn([7])
    assert asked == [7], "what another thread has found out is there"
    assert others.renew({0}, None)


def test_a_number_that_the_registry_did_not_have_is_forgotten_by_all_plans(compiler):
    legs = [made_leg("a", "orders")]
    now = [0.0]
    writers = WriterSchemas({}, lambda _: None, clock=lambda: now[0])
    legs[0].source.value = SimpleNamespace(writers=writers)
    plans, others = plans_of(compiler, *legs), plans_of(compiler, *legs)
    plans.learn([7])
    assert plans.renew({0}, None)
    assert others.renew({0}, None)
    assert not plans.renew({0}, None)
    now[0] += UNKNOWN_SECONDS
    assert plans.renew({0}, None)
    assert others.renew({0}, None)
    plans.learn([7])
    assert writers.known() == {7: None}
