"""What legs do with their rows in a worker, beside Catalyst's steps: aggregations, joins, tables, and event time."""
