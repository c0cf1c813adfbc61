"""Studies on a real Spark, a stranger's assignor in a file among them."""

import dataclasses
import textwrap

import pytest

from sparkrelay.assignment import HighAvailabilityTaskAssignor, StickyTaskAssignor
from sparkrelay.errors import ConfigException
from sparkrelay.simulate import Outcome, Scenario, mixed_scenarios, simulate
from sparkrelay.simulate.outcome import MEASURES
from sparkrelay.simulate.study import run_study, scenario_frame, summarize, watched

pytestmark = pytest.mark.integration

SCENARIOS = [dataclasses.replace(scenario, partitions=6) for scenario in mixed_scenarios(12, seed=3)]
OURS = [HighAvailabilityTaskAssignor, StickyTaskAssignor]


def test_a_row_on_spark_is_what_the_simulation_says_here(spark):
    rows = run_study(spark, SCENARIOS, OURS).collect()
    assert len(rows) == len(SCENARIOS) * len(OURS)
    kinds = {"HighAvailability": HighAvailabilityTaskAssignor, "Sticky": StickyTaskAssignor}
    for row in rows:
        found = row.asDict()
        scenario = SCENARIOS[row.scenario]
        assert {field.name: found[field.name] for field in dataclasses.fields(Scenario)} == dataclasses.asdict(scenario)
        outcome = {field.name: found[field.name] for field in dataclasses.fields(Outcome)}
        assert outcome == dataclasses.asdict(simulate(scenario, kinds[row.assignor]()))


def test_scenarios_may_be_a_frame_with_some_columns_only(spark):
    frame = spark.createDataFrame([(4, "scale-in"), (5, "calm")], "clients int, churn string")
    rows = run_study(spark, frame, [StickyTaskAssignor]).collect()
    assert sorted((row.clients, row.churn) for row in rows) == [(4, "scale-in"), (5, "calm")]
    assert {row.partitions for row in rows} == {Scenario().partitions}


def test_bad_scenarios_are_refused_by_name(spark):
    with pytest.raises(ConfigException, match="shoe_size"):
        run_study(spark, scenario_frame(spark, SCENARIOS).withColumnRenamed("seed", "shoe_size"), OURS)
    with pytest.raises(ConfigException, match="at least one scenario"):
        run_study(spark, [], OURS)


@pytest.fixture
def assignor_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        textwrap.dedent(
            """
            from sparkrelay.assignment import AssignedTask, KafkaStreamsAssignment, TaskAssignment, TaskAssignor

            ROLE = AssignedTask.Type.ACTIVE


            def deal(tasks, process, of):
                return [AssignedTask(task.id, ROLE) for task in list(tasks)[process::of]]


            class RoundRobinAssignor(TaskAssignor):
                def assign(self, application_state):
                    processes = sorted(application_state.clients)
                    return TaskAssignment(
                        KafkaStreamsAssignment.of(process, deal(application_state.all_tasks, number, len(processes)))
                        for number, process in enumerate(processes)
                    )


            class LoopingAssignor(RoundRobinAssignor):
                def assign(self, application_state):
                    while True:
                        try:
                            deal(application_state.all_tasks, 0, 1)
                        except Exception:
                            pass


            class FailsInBouncesAssignor(RoundRobinAssignor):
                calls = 0

                def assign(self, application_state):
                    self.calls += 1
                    if self.calls == 3:
                        raise LookupError("three is too many")
                    return super().assign(application_state)
            """
        )
    )
    return file


def test_a_strangers_assignor_runs_from_its_file(spark, assignor_file):
    results = run_study(spark, SCENARIOS, [f"{assignor_file}:RoundRobinAssignor", *OURS])
    rows = results.where("assignor = 'RoundRobin'").collect()
    assert len(rows) == len(SCENARIOS)
    assert all(row.converged and row.rebalances >= 1 for row in rows)


@pytest.mark.long
def test_a_failing_assignor_gives_rows_with_its_error_and_ends_nothing(spark, assignor_file):
    results = run_study(spark, SCENARIOS, [f"{assignor_file}:FailsInBouncesAssignor", StickyTaskAssignor]).persist()
    try:
        failed = results.where("error is not null").collect()
        assert failed
        for row in failed:
            assert row.assignor == "FailsInBounces"
            assert row.error == "LookupError: three is too many"
            assert not row.converged
            assert all(row[name] is None for name in MEASURES)
        summary = {(row.churn, row.assignor): row for row in summarize(results).collect()}
        whole = summary["all", "FailsInBounces"]
        assert (whole.runs, whole.failed) == (len(SCENARIOS), len(failed))
        assert summary["rolling-bounce", "FailsInBounces"].rebalances_mean is None
        assert summary["all", "Sticky"].failed == 0
    finally:
        results.unpersist()


def test_an_assignor_that_never_returns_gives_rows_with_its_error(spark, assignor_file):
    rows = run_study(spark, SCENARIOS[:3], [f"{assignor_file}:LoopingAssignor"], limit_s=0.1).collect()
    assert len(rows) == 3
    assert all("not through after 0.1 s" in row.error for row in rows)


def test_the_summary_has_a_row_for_each_kind_and_assignor(spark):
    rows = summarize(run_study(spark, SCENARIOS, OURS)).collect()
    kinds = {scenario.churn for scenario in SCENARIOS} | {"all"}
    names = ("HighAvailability", "Sticky")
    assert {(row.churn, row.assignor) for row in rows} == {(kind, name) for kind in kinds for name in names}
    calm = next(row for row in rows if (row.churn, row.assignor) == ("calm", "HighAvailability"))
    assert calm.runs == 2
    assert calm.tasks_moved_mean == 0


@pytest.mark.long
def test_progress_is_reported_while_it_runs(spark):
    reported = []
    results = run_study(spark, mixed_scenarios(60, seed=1), OURS).persist()
    with watched(spark, reported.append):
        assert results.count() == 120
    results.unpersist()
    totals = {progress.total for progress in reported if progress.total}
    assert max(totals) >= 4
    assert [p.done for p in reported if p.total == max(totals)] == sorted(
        p.done for p in reported if p.total == max(totals)
    )
