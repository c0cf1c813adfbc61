"""What is kept of the last rebalances."""

from sparkrelay.observe.rebalance_stories import RebalanceStories


def test_a_decision_gets_the_generation_of_the_assignment_that_follows():
    stories = RebalanceStories(clock=lambda: 5.0)
    stories.decided("t-1", "b joined", ["0_1 moves"])
    assert stories.entries[0]["generation"] is None
    stories.assigned("t-2", 3, why="b joined", moves=[], active=1, standby=0)
    stories.assigned("t-1", 4, why="b joined", moves=["gains 0_1"], active=2, standby=1)
    stories.in_service("t-1", 4, seconds=1.5, until_assigned=0.25)
    assert [(entry["thread"], entry["kind"], entry["generation"]) for entry in stories.entries] == [
        ("t-1", "decided", 4),
        ("t-2", "assigned", 3),
        ("t-1", "assigned", 4),
        ("t-1", "in service", 4),
    ]
    assert stories.entries[2]["lines"] == ["gains 0_1", "2 active, 1 standby now"]
    assert stories.entries[3]["seconds"] == 1.5
    assert stories.entries[3]["lines"] == ["0.250 s until the assignment, 1.250 s to open tasks"]


def test_no_more_than_so_much_is_kept():
    stories = RebalanceStories()
    for _ in range(1_000):
        stories.decided("t", "why" * 1_000, ["line" * 1_000] * 1_000)
    assert len(stories.entries) == 60
    entry = stories.entries[0]
    assert len(entry["lines"]) == 61
    assert "940 lines more" in entry["lines"][-1]
    assert max(map(len, [*entry["lines"], entry["why"]])) == 500
