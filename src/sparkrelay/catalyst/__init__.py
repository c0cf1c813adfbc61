"""What we read out of Spark's Catalyst, and what we build of it: the one place that knows its insides."""
