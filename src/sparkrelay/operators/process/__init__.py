"""``transformWithState``: each group's rows go to the user's stateful processor."""
