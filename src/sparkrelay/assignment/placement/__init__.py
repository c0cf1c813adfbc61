"""How copies of tasks are placed: balance, racks, tags, and moves in steps."""
