"""Nexmark: the 24 queries of an auction house as SparkRelay pipelines, each compared with Spark SQL."""
