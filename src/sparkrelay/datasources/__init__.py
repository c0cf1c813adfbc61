"""Spark data sources, and readers without Spark, of topics and of stores' tables.

A changelog describes its store, so its rows are decoded like the store's own, without an instance.
"""
