"""``transformWithState``: rows go, group by group, to a stateful processor of the user's."""
