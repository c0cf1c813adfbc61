"""The runtime: from a topology to Spark jobs, from jobs to transactions."""
