import pytest

from sparkrelay.assignment import AssignedTask, KafkaStreamsAssignment, TaskAssignment, TaskAssignor


class FirstTakesAll(TaskAssignor):
    """Every active to the lowest process, no standbys."""

    def assign(self, application_state):
        first, *others = sorted(application_state.clients)
        tasks = [AssignedTask(info.id, AssignedTask.Type.ACTIVE) for info in application_state.all_tasks]
        return TaskAssignment(
            [KafkaStreamsAssignment.of(first, tasks), *(KafkaStreamsAssignment.of(other, ()) for other in others)],
        )


@pytest.fixture
def first_takes_all():
    return FirstTakesAll
