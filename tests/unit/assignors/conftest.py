"""Groups written as short tables: ``{1: "0_0 0_1 / 0_2"}`` is what process 1 runs, and what it follows."""

import pytest

from sparkrelay.testing import application_state


@pytest.fixture(scope="session")
def group():
    """Make a group from what each process had before and the number of partitions of each subtopology."""

    def make(processes, partitions, *, replicas=0, stateless=(), threads=(), racks=()):
        threads, racks = dict(threads), dict(racks)
        clients = []
        for number, row in processes.items():
            active, _slash, standby = row.partition("/")
            clients.append(
                {
                    "process_id": f"00000000-0000-0000-0000-{number:012x}",
                    "threads": threads.get(number, 1),
                    "prev_active": active.split(),
                    "prev_standby": standby.split(),
                    "rack_id": racks.get(number),
                }
            )
        tasks = [
            {"id": f"{subtopology}_{partition}", "stateful": subtopology not in stateless}
            for subtopology, count in enumerate(partitions)
            for partition in range(count)
        ]
        return application_state({"tasks": tasks, "clients": clients, "configs": {"num_standby_replicas": replicas}})

    return make


@pytest.fixture(scope="session")
def table():
    """Write an assignment as the table that ``group`` takes."""

    def write(assignment):
        rows = {}
        for entry in assignment.assignment:
            active = " ".join(map(str, entry.active_tasks))
            standby = " ".join(map(str, entry.standby_tasks))
            rows[int(entry.process_id.id)] = f"{active} / {standby}".strip() if standby else active
        return rows

    return write
